// The fixed request.cf.

/** What request.cf says unless a request overrides it: fixed, so that nothing is ever fetched for it. */
export const CF = Object.freeze({
  asn: 395747, asOrganization: "local edge", colo: "DFW", continent: "NA", country: "US", city: "Austin", region: "Texas", regionCode: "TX",
  postalCode: "78701", metroCode: "635", latitude: "30.27130", longitude: "-97.74260", timezone: "America/Chicago",
  httpProtocol: "HTTP/1.1", tlsVersion: "TLSv1.3", tlsCipher: "AEAD-AES128-GCM-SHA256",
});

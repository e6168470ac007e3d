/** Which shard serves a request. Pure. */

import type { Shard, WorkerConfig } from "./config";

/** Where a request comes from, as Cloudflare saw it: ISO 3166 country and two-letter continent. */
export interface Origin {
  readonly country?: string | undefined;
  readonly continent?: string | undefined;
}

/** A country that matches wins over a continent that matches; who matches nothing gets the default shard. */
export function chooseShard(config: WorkerConfig, { country, continent }: Origin): Shard {
  const byCountry = country && config.shards.find((shard) => shard.countries.includes(country));
  const byContinent = continent && config.shards.find((shard) => shard.continents.includes(continent));
  return byCountry || byContinent || config.defaultShard;
}

export function originOf(request: Request): Origin {
  const cf = request.cf as Origin | undefined;
  return { country: cf?.country, continent: cf?.continent };
}

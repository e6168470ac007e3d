"""Files that tools load into their own processes; edgespec itself imports none of them."""

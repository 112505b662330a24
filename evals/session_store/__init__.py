"""Throughput of the session store in events per second, and the latency of each append."""

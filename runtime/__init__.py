"""Asyncio infrastructure: clocks, tasks, bounded queues, threads and child processes."""

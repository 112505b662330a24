"""Sources in a bucket of S3, and outputs in one."""

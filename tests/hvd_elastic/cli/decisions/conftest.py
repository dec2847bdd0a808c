from testbed.s3_server import bucket, client, endpoint, put

__all__ = ["bucket", "client", "endpoint", "put"]

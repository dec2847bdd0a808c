from testbed.s3_server import bucket, client, endpoint, put, put_parts

__all__ = ["bucket", "client", "endpoint", "put", "put_parts"]

"""`bench`: how fast a model trains or infers, on one device or on all ranks of a job."""

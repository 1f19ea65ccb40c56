"""A client of the OCI distribution API, with logins and signatures. It does not depend on releases."""

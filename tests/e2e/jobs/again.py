"""The first time a job of Slurm's is started, its node is lost, as `run` says it; the next time all is well."""

import os
import sys

NODE_LOST = 89
again = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
print(f"started again {again} times", flush=True)
sys.exit(0 if again else NODE_LOST)

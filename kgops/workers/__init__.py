"""Entry points of worker processes: from a job to events and files. Nothing here knows the database."""

import os

# Before anything loads OpenMP. Its threads otherwise spin while they wait for each other, and on cores that
# somebody else uses too they spin away the very time the others need. Whoever sets it has the last word.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

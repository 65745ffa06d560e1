"""All environment variables of the course. What one of its processes hands to another travels on command lines.

| variable | who sets it | what it says |
|---|---|---|
| `COURSE_DATA_DIR` | users | the folder with the data sets' published files |
| `COURSE_SLICE` | users, tests | how many training images `data.load` gives; default: all |
| `COURSE_TENSORFLOW` | operators | `given`: use the TensorFlow and Horovod that `python3` has, as in NVIDIA's images |
| `COURSE_REMOTE_SHELL` | operators | the command that reaches the host `{host}`, in place of ssh |
| `COURSE_PROFILE` | instructors | the profile of assessments; default: `gpu` where there are GPUs, else `cpu` |
| `COURSE_ADDRESS` | images | the address that the lab listens on; default: 127.0.0.1 |
| `COURSE_CHECK` | images | set where the image examines the host before it opens the lab |
| `COURSE_WEIGHTS` | the grader | the file that an assessed script saves its weights to |
| `COURSE_GRADING` | the grader | the file with what `course grade` tells the notebook that assesses a script |

The lab's token and port are Jupyter's own variables, `JUPYTER_TOKEN` and `JUPYTER_PORT`.
"""

from __future__ import annotations

DATA_DIR = "COURSE_DATA_DIR"
SLICE = "COURSE_SLICE"
TENSORFLOW = "COURSE_TENSORFLOW"
REMOTE_SHELL = "COURSE_REMOTE_SHELL"
PROFILE = "COURSE_PROFILE"
ADDRESS = "COURSE_ADDRESS"
CHECK = "COURSE_CHECK"
WEIGHTS = "COURSE_WEIGHTS"
GRADING = "COURSE_GRADING"

"""Model parallelism: tensor parallelism (`layers`) and pipeline parallelism (`pipeline`, `schedules`)."""

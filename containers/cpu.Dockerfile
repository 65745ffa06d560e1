# The course on processor cores. containers/launch builds and starts it; by hand, in the project's folder:
#
#     docker build -f containers/cpu.Dockerfile --target learner -t one-model-many-gpus:cpu-learner .
#
# The target `learner` has what `course lab` needs and no answers, `instructor` the whole project.
# With podman or buildah add `--format docker`, else the health check is dropped.

ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS system
RUN --mount=type=bind,source=containers/image,target=/mnt sh /mnt/system

# Horovod is compiled here. The library's other files come later: their changes do not compile it again.
FROM system AS environment
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends g++ libopenmpi-dev python3-venv
WORKDIR /course
COPY course pyproject.toml README.md requirements*.lock ./
COPY labs/__init__.py labs/
COPY assessment/course_grader/__init__.py assessment/course_grader/
COPY course_lib/__init__.py course_lib/
COPY course_lib/system course_lib/system
COPY course_lib/command/__init__.py course_lib/command/
COPY course_lib/command/setup course_lib/command/setup
RUN --mount=type=cache,target=/root/.cache --mount=type=bind,source=containers/image,target=/mnt sh /mnt/environment

FROM environment AS project
COPY . /project
RUN sh /project/containers/image/project

FROM system AS runtime
COPY --from=environment /course/.venv /course/.venv
COPY containers/image/course-start containers/image/course-health /usr/local/bin/
ENV PATH=/course/.venv/bin:$PATH LANG=C.UTF-8 XDG_CACHE_HOME=/workspace/.cache KERAS_HOME=/workspace/.cache/keras
USER learner
WORKDIR /workspace
VOLUME /workspace
EXPOSE 8888
HEALTHCHECK --interval=2m --timeout=10m --start-period=10m CMD ["course-health"]
ENTRYPOINT ["tini", "--", "course-start"]
LABEL org.opencontainers.image.title="One Model, Many GPUs" \
      org.opencontainers.image.version="0.1.0"

FROM runtime AS instructor
COPY --from=project /instructor /course
LABEL org.opencontainers.image.description="For instructors: the whole course on processor cores, answers included"

FROM runtime AS learner
COPY --from=project /learner /course
LABEL org.opencontainers.image.description="For learners: the course on processor cores, without answers"

# The course on NVIDIA GPUs: on NVIDIA's TensorFlow image, whose TensorFlow and Horovod (with NCCL and MPI) are used as
# they are. Untested on hardware; so each container checks itself before it opens the lab.
#
#     docker build -f containers/gpu.Dockerfile --target learner -t one-model-many-gpus:gpu-learner .
#
# For newer GPUs add `--build-arg BASE=nvcr.io/nvidia/tensorflow:25.02-tf2-py3`: TensorFlow 2.17, where tf_keras takes
# the place of Keras 3. Targets, and what podman and buildah need: see cpu.Dockerfile.

ARG BASE=nvcr.io/nvidia/tensorflow:24.03-tf2-py3

FROM ${BASE} AS system
ENV COURSE_TENSORFLOW=given
RUN --mount=type=bind,source=containers/image,target=/mnt sh /mnt/system

# Nothing is compiled here: the set-up finds TensorFlow and Horovod, or ends with a sentence on what is missing.
FROM system AS environment
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends python3-venv
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
# The course's own processes grow their memory on a GPU; here all do, those of a terminal or of another Jupyter too.
ENV PATH=/course/.venv/bin:$PATH LANG=C.UTF-8 XDG_CACHE_HOME=/workspace/.cache KERAS_HOME=/workspace/.cache/keras \
    TF_FORCE_GPU_ALLOW_GROWTH=true COURSE_CHECK=1
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
LABEL org.opencontainers.image.description="For instructors: the whole course on NVIDIA GPUs, answers included"

FROM runtime AS learner
COPY --from=project /learner /course
LABEL org.opencontainers.image.description="For learners: the course on NVIDIA GPUs, without answers"

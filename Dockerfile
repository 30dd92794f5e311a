# syntax=docker/dockerfile:1
# docvino as a service. Two images of one file:
#   docker build --target cpu -t docvino:cpu .
#   docker build --target gpu -t docvino:gpu .      with Intel's user-mode GPU drivers
# docs/deploy.md says how they are run, and what was not tried.

# Ubuntu because Intel's driver packages are made for it, and one distribution for both images. By tag: name its digest
# here (docker buildx imagetools inspect ubuntu:24.04) where builds must be the same for years.
ARG BASE=ubuntu:24.04

# No versions of Ubuntu's own packages: its archive keeps none but the newest, and a build must not fail for that.
# hadolint global ignore=DL3008

# ---- docvino in an environment of its own
FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/docvino
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY deploy/constraints.txt deploy/
COPY src src
RUN /opt/docvino/bin/pip install --no-cache-dir --disable-pip-version-check --constraint deploy/constraints.txt \
    ".[serve,vlm,office,pdf]"

# ---- Intel's drivers: one release, with the compiler that belongs to it, each file checked
# Source of the sums: the checksum lists of both releases, by way of cTuning's setup of Intel's runtime (2026-10); of
# libze1, for which no list is published, its first download there. None of these files was seen by docvino's authors.
FROM scratch AS drivers
ADD --checksum=sha256:61712caaddeba3d38e4f79e2a0fb23fea25596ca2d72c3144c6eea2331ec4301 \
    https://github.com/intel/compute-runtime/releases/download/26.35.39758.10/intel-opencl-icd_26.35.39758.10-0_amd64.deb /
ADD --checksum=sha256:c19a641b953d55aebbf1d51bec364a84bf629f985e02fbbe6dc70224c0e88470 \
    https://github.com/intel/compute-runtime/releases/download/26.35.39758.10/libze-intel-gpu1_26.35.39758.10-0_amd64.deb /
ADD --checksum=sha256:6031a63d6e8a12ce61c14efc15f2c8e727061286e3820b8594e6d00615e04d54 \
    https://github.com/intel/compute-runtime/releases/download/26.35.39758.10/libigdgmm12_22.10.0_amd64.deb /
ADD --checksum=sha256:0a6e64a663ae65a0fa02d6912ae3b6b37cf85b90c21cc423fd9fef70aaf4f628 \
    https://github.com/intel/intel-graphics-compiler/releases/download/v2.41.5/intel-igc-core-2_2.41.5+22716_amd64.deb /
ADD --checksum=sha256:779e1b9e88098eb25711e9a8f67c2752665bad22f134aa40ed5649f6e1b87058 \
    https://github.com/intel/intel-graphics-compiler/releases/download/v2.41.5/intel-igc-opencl-2_2.41.5+22716_amd64.deb /
ADD --checksum=sha256:45210e4549cd965ad7b9f160eefe53cbcdba01af341bea7ac7ba0aedeeb613ba \
    https://github.com/oneapi-src/level-zero/releases/download/v1.34.0/libze1_1.34.0+u24.04_amd64.deb /

# ---- the service, on the CPU
FROM ${BASE} AS cpu
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 docvino \
    && useradd --system --uid 10001 --gid docvino --home-dir /var/lib/docvino --shell /usr/sbin/nologin docvino \
    && install -d -o docvino -g docvino /var/lib/docvino /var/cache/docvino
COPY --from=build /opt/docvino /opt/docvino
ENV PATH=/opt/docvino/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DOCVINO_DATA_DIR=/var/lib/docvino \
    DOCVINO_CACHE_DIR=/var/cache/docvino
USER 10001:10001
# Models and jobs; compiled models and passed self-tests, which belong to one machine and its driver.
VOLUME ["/var/lib/docvino", "/var/cache/docvino"]
WORKDIR /var/lib/docvino
EXPOSE 8080
STOPSIGNAL SIGTERM
# Models are loaded, and compiled the first time, before it is ready: minutes with a large model on a GPU.
HEALTHCHECK --interval=15s --timeout=5s --start-period=10m --retries=3 \
    CMD ["python3", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8080, timeout=4); \
c.request('GET', '/readyz'); exit(c.getresponse().status != 200)"]
ENTRYPOINT ["tini", "--", "docvino"]
# Other addresses than 127.0.0.1 need a key: without DOCVINO_API_KEY the service says so and ends.
CMD ["serve", "--host", "0.0.0.0", "--port", "8080"]

# ---- the service, with Intel's GPU drivers
FROM cpu AS gpu
# Only to install: the service runs as docvino again below.
# hadolint ignore=DL3002
USER 0
RUN --mount=type=bind,from=drivers,target=/drivers \
    apt-get update \
    && apt-get install -y --no-install-recommends ocl-icd-libopencl1 /drivers/*.deb \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001

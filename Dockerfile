# The image of a job: launcher, discovery sidecar and workers (docs/image.md).
#
#   docker build -t hvd-elastic .
#   docker build --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 -t hvd-elastic:cuda .       with NCCL
#   docker build --build-context wheels=DIR ...      takes DIR/horovod-*.whl instead of building Horovod
#
# BASE is any Debian or Ubuntu whose python3 is 3.11 to 3.13. The layers go from what changes least to what changes most:
# system, dependencies (torch: gigabytes), Horovod, and last this project, so that a new version of it is a small layer.
ARG BASE=docker.io/library/debian:12.12-slim

# Empty, unless a named build context takes its place.
FROM scratch AS wheels

FROM ${BASE} AS tools
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/tools \
    && /opt/tools/bin/pip install --no-cache-dir uv==0.13.9 hatchling==1.33.0

FROM tools AS lock
COPY pyproject.toml uv.lock /src/
RUN /opt/tools/bin/uv export --project /src --frozen --quiet --no-dev --no-emit-project --no-header --extra all \
        --output-file /src/requirements.txt

FROM tools AS product
COPY pyproject.toml README.md LICENSE /src/
# `hvd_elastic` has links to the other four.
COPY priorityclasses /src/priorityclasses
COPY mpijob /src/mpijob
COPY discovery /src/discovery
COPY trainer /src/trainer
COPY hvd_elastic /src/hvd_elastic
RUN cd /src && /opt/tools/bin/hatchling build --target wheel --directory /dist

FROM ${BASE} AS system
ENV DEBIAN_FRONTEND=noninteractive
# The package makes host keys for sshd; an image must not carry any.
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates openmpi-bin openssh-client openssh-server python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
    && useradd --uid 1000 --user-group --create-home --shell /bin/bash mpiuser \
    && install -d -o 1000 -g 1000 -m 0755 /run/hvd-elastic /workspace

FROM system AS dependencies
COPY --from=lock /src/requirements.txt /opt/requirements.txt
# SSL_CERT_FILE: trust what the base image trusts, a company's own certificate authority included. Byte code is compiled
# now: a pod's root file system is read-only, and importing torch without it takes seconds more in every worker.
COPY --from=tools /opt/tools/bin/uv /usr/local/bin/uv
RUN python3 -m venv /opt/hvd-elastic \
    && SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
       uv pip install --quiet --no-cache --link-mode copy --python /opt/hvd-elastic/bin/python --no-deps --require-hashes \
        --compile-bytecode --requirement /opt/requirements.txt

FROM dependencies AS horovod
ENV DEBIAN_FRONTEND=noninteractive
COPY --from=wheels / /wheels/
COPY mpijob/__init__.py mpijob/contract.py /src/hvd_elastic/mpijob/
COPY hvd_elastic/__init__.py /src/hvd_elastic/
COPY hvd_elastic/horovod /src/hvd_elastic/horovod
# What `hvd-elastic install-horovod` does, from the files that decide it alone: another verb must not compile it again.
RUN if test -z "$(ls /wheels)"; then \
        apt-get update \
        && apt-get install -y --no-install-recommends g++ make patch python3-dev \
        && cd /src \
        && /opt/hvd-elastic/bin/python -c "import pathlib; from hvd_elastic.horovod import wheel_build as build; \
            build.wheel(build.read_recipe(), pathlib.Path('/wheels'), progress=print)"; \
    fi \
    && find /wheels -mindepth 2 -name '*.whl' -exec mv {} /wheels/ ';'

FROM dependencies AS runtime
COPY --chmod=0644 docker/sshd_config docker/ssh_config /etc/ssh/
COPY --chmod=0755 docker/ssh /usr/local/bin/ssh
COPY --from=horovod /wheels /opt/wheels
RUN uv pip install --quiet --no-cache --offline --python /opt/hvd-elastic/bin/python --no-deps --compile-bytecode \
        /opt/wheels/horovod-*.whl
ENV PATH=/opt/hvd-elastic/bin:/usr/local/bin:/usr/bin:/bin \
    VIRTUAL_ENV=/opt/hvd-elastic \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PYTHONUNBUFFERED=1 \
    HOME=/home/mpiuser
WORKDIR /workspace

FROM runtime AS image
COPY --from=product /dist /opt/wheels
RUN uv pip install --quiet --no-cache --offline --no-deps --compile-bytecode /opt/wheels/hvd_elastic-*.whl
COPY examples /workspace/examples
# A number: Kubernetes checks runAsNonRoot without looking a name up.
USER 1000:1000
CMD ["hvd-elastic", "--help"]

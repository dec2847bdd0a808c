# The image of a job: launcher, discovery sidecar and workers (docs/image.md).
#
#   docker build -t hvd-elastic .
#   docker build --build-arg ENGINE=torch -t hvd-elastic:torch .                               without Horovod
#   docker build --build-arg ACCELERATOR=cuda -t hvd-elastic:cuda .                            Horovod with NCCL
#   docker build --build-arg ACCELERATOR=cuda --build-arg NETWORK=efa -t hvd-elastic:efa .     and AWS's adapters
#   docker build --build-context wheels=DIR ...      takes DIR/horovod-*.whl instead of building Horovod
#
# The layers go from what changes least to what changes most: system, dependencies (torch: gigabytes), Horovod, and last
# this project, so that a new version of it is a small layer.

# Any Debian or Ubuntu whose python3 is 3.11 to 3.15. This is debian:trixie-20260918-slim; its digest is from
# docker-library/repo-info, repos/debian/remote/trixie-20260918-slim.md. Raise it together with SNAPSHOT.
ARG BASE=docker.io/library/debian@sha256:a99cfc517144bc59b1978475ec53b46ecabec7e43635402ee5b77cc54cd1b20a
# The day whose packages of Debian are taken, and where from. Empty: apt keeps the sources of BASE.
ARG SNAPSHOT=20260918T000000Z
ARG SNAPSHOT_ARCHIVE=http://snapshot.debian.org/archive
# horovod or torch: what jobs average over. torch: Horovod is neither compiled nor in the image.
ARG ENGINE=horovod
# cpu or cuda: what Horovod is compiled for, where it is compiled.
ARG ACCELERATOR=cpu
# tcp or efa: efa adds AWS's libfabric, and the plugin through which NCCL uses it.
ARG NETWORK=tcp
# The first release whose plugin knows NCCL 2.30, which torch brings (aws-ofi-nccl 1.20.0). AWS says each release's checksum
# in https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-verify.html; NVIDIA's Dynamo pins the same one
# (ai-dynamo/dynamo, recipes).
ARG EFA_SITE=https://efa-installer.amazonaws.com
ARG EFA_INSTALLER=1.49.0
ARG EFA_INSTALLER_SHA256=cf2e9281a2328a243c76f911a490faed43ca0fecfe4733c25e34b2e92a32c309

# Empty, unless a named build context takes its place.
FROM scratch AS wheels

FROM ${BASE} AS pinned
ARG SNAPSHOT
ARG SNAPSHOT_ARCHIVE
COPY --chmod=0755 docker/debian-snapshot /usr/local/sbin/
RUN debian-snapshot "$SNAPSHOT" "$SNAPSHOT_ARCHIVE"

# The lock file says the same of uv; a test compares. It is not read here: a change of it must not change this stage.
FROM pinned AS uv
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/tools \
    && printf 'uv==0.13.9 --hash=sha256:%s --hash=sha256:%s\n' \
        d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19 \
        ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375 >/opt/uv.txt \
    && /opt/tools/bin/pip install --no-cache-dir --require-hashes --requirement /opt/uv.txt

FROM uv AS lock
COPY pyproject.toml uv.lock /src/
# The time of a file is part of what the next stages are cached by; what is in it seldom changes.
RUN locked="/opt/tools/bin/uv export --project /src --frozen --quiet --no-emit-project --no-header" \
    && $locked --no-dev --extra all --output-file /src/requirements.txt \
    && $locked --only-group image --output-file /src/image.txt \
    && $locked --only-group cuda-compiler --output-file /src/cuda-compiler.txt \
    && touch --date=@0 /src/*.txt

FROM uv AS tools
COPY --from=lock /src/image.txt /opt/image.txt
RUN SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    /opt/tools/bin/uv pip install --quiet --no-cache --python /opt/tools/bin/python --no-deps --require-hashes \
        --requirement /opt/image.txt

FROM tools AS product
COPY pyproject.toml README.md LICENSE /src/
# `hvd_elastic` has links to the other four.
COPY priorityclasses /src/priorityclasses
COPY mpijob /src/mpijob
COPY discovery /src/discovery
COPY trainer /src/trainer
COPY hvd_elastic /src/hvd_elastic
RUN cd /src && /opt/tools/bin/hatchling build --target wheel --directory /dist

FROM pinned AS system
ENV DEBIAN_FRONTEND=noninteractive
# BASE may be older than SNAPSHOT, so its packages are brought to that day, too. The package makes host keys for sshd; an
# image must not carry any.
RUN apt-get update \
    && apt-get upgrade -y --no-install-recommends \
    && apt-get install -y --no-install-recommends \
        ca-certificates libnss-extrausers openmpi-bin openssh-client openssh-server python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* \
    && useradd --uid 1000 --user-group --create-home --shell /bin/bash mpiuser \
    && install -d -o 1000 -g 1000 -m 0775 /run/hvd-elastic /workspace /home/mpiuser
# A pod may run as any user, as on OpenShift: mpiuser's group may write what mpiuser may, and the pod's first process
# enters the user where NSS looks first, because ssh and sshd want an entry.
RUN sed -i 's/^passwd:.*/passwd: extrausers files/' /etc/nsswitch.conf \
    && ln -s /run/hvd-elastic/passwd /var/lib/extrausers/passwd

FROM system AS dependencies
COPY --from=lock /src/requirements.txt /opt/requirements.txt
# SSL_CERT_FILE: trust what the base image trusts, a company's own certificate authority included. Byte code is compiled
# now: a pod's root file system is read-only, and importing torch without it takes seconds more in every worker.
COPY --from=uv /opt/tools/bin/uv /usr/local/bin/uv
RUN python3 -m venv /opt/hvd-elastic \
    && SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
       uv pip install --quiet --no-cache --link-mode copy --python /opt/hvd-elastic/bin/python --no-deps --require-hashes \
        --compile-bytecode --requirement /opt/requirements.txt

FROM dependencies AS horovod
ENV DEBIAN_FRONTEND=noninteractive
ARG ENGINE
ARG ACCELERATOR
COPY --from=wheels / /wheels/
COPY --from=lock /src/cuda-compiler.txt /opt/cuda-compiler.txt
# NVIDIA's compiler stays in this stage; CUDA's libraries and NCCL are torch's.
RUN case "$ENGINE $ACCELERATOR" in \
    "horovod cpu" | "horovod cuda" | "torch cpu" | "torch cuda") ;; \
    *) echo "ENGINE=$ENGINE, ACCELERATOR=$ACCELERATOR: there is horovod and torch, cpu and cuda" >&2; exit 2 ;; \
    esac \
    && if test "$ENGINE" = horovod && test -z "$(ls /wheels)"; then \
        apt-get update \
        && apt-get install -y --no-install-recommends g++ make patch python3-dev \
        && rm -rf /var/lib/apt/lists/* \
        && if test "$ACCELERATOR" = cuda; then \
            SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
            uv pip install --quiet --no-cache --python /opt/hvd-elastic/bin/python --no-deps --require-hashes \
                --requirement /opt/cuda-compiler.txt; \
        fi; \
    fi
COPY mpijob/__init__.py mpijob/contract.py /src/hvd_elastic/mpijob/
COPY hvd_elastic/__init__.py hvd_elastic/moved_modules.py /src/hvd_elastic/
COPY hvd_elastic/horovod /src/hvd_elastic/horovod
# What `hvd-elastic install-horovod` does, from the files that decide it alone: another verb must not compile it again.
# Nor must a change of these files that is not in the wheel: it is kept in the builder's cache by its recipe, and by the
# release whose compiler and C library made it.
RUN --mount=type=cache,id=hvd-elastic-horovod,target=/var/cache/horovod,sharing=locked \
    if test "$ENGINE" = horovod && test -z "$(ls /wheels)"; then \
        . /etc/os-release \
        && cd /src \
        && wheel=$(/opt/hvd-elastic/bin/python -u -c "import functools, pathlib, sys; \
            from hvd_elastic.horovod import wheel_build as build; \
            say = functools.partial(print, file=sys.stderr); \
            print(build.wheel(build.read_recipe(), pathlib.Path(sys.argv[1]), progress=say))" \
            "/var/cache/horovod/$ID-${VERSION_ID:-$VERSION_CODENAME}") \
        && cp "$wheel" /wheels/; \
    fi

FROM dependencies AS runtime
ARG NETWORK
ARG EFA_SITE
ARG EFA_INSTALLER
ARG EFA_INSTALLER_SHA256
COPY --chmod=0755 docker/install-network /usr/local/sbin/
RUN install-network "$NETWORK" "$EFA_INSTALLER" "$EFA_INSTALLER_SHA256"
COPY --chmod=0644 docker/sshd_config docker/ssh_config /etc/ssh/
# OpenSSH from 9.8 on refuses an address for a while whose connections break off before the login. Here that is the
# launcher's, whose process died and was made again. An older one does not start with a word that it does not know.
RUN if /usr/sbin/sshd -G -o PerSourcePenalties=no >/dev/null 2>&1; then \
        echo "PerSourcePenalties no" >>/etc/ssh/sshd_config; \
    fi
COPY --chmod=0755 docker/ssh /usr/local/bin/ssh
COPY --from=horovod /wheels/ /opt/wheels/
# An older buildah knows no stage whose name an argument has.
ARG ENGINE
RUN if test "$ENGINE" = horovod; then \
        uv pip install --quiet --no-cache --offline --python /opt/hvd-elastic/bin/python --no-deps --compile-bytecode \
            /opt/wheels/horovod-*.whl; \
    fi
ENV HVD_ELASTIC_ENGINE=$ENGINE
ENV PATH=/opt/hvd-elastic/bin:/usr/local/bin:/usr/bin:/bin \
    VIRTUAL_ENV=/opt/hvd-elastic \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PYTHONUNBUFFERED=1 \
    HOME=/home/mpiuser
WORKDIR /workspace

# All but this project itself, whose name and version pyproject.toml has: a change of our code must not list it all again.
FROM runtime AS contents
COPY --from=tools /opt/tools /opt/tools
COPY --chmod=0755 docker/sbom /usr/local/sbin/
COPY pyproject.toml /src/
RUN TOOLS=/opt/tools/bin /usr/local/sbin/sbom /opt/hvd-elastic/bin/python /src/pyproject.toml /sbom/sbom.cdx.json

FROM runtime AS image
COPY --from=contents /sbom /usr/share/doc/hvd-elastic
COPY --from=product /dist /opt/wheels
RUN uv pip install --quiet --no-cache --offline --no-deps --compile-bytecode /opt/wheels/hvd_elastic-*.whl
COPY examples /workspace/examples
# A number: Kubernetes checks runAsNonRoot without looking a name up.
USER 1000:1000
CMD ["hvd-elastic", "--help"]

# syntax=docker/dockerfile:1
# Entrepot in a container:
#   docker build --tag entrepot .
#   docker run --volume entrepot:/var/lib/entrepot --publish 9000:9000 --publish 9001:9001 entrepot
# The first start creates the site in the volume and prints the path of its secret key. Later starts serve that site.

FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY requirements-uv.lock requirements-runtime.lock requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements-uv.lock
# The run-time dependencies, by hash, in an environment that the second stage copies.
RUN python -m venv --without-pip /opt/entrepot \
    && uv pip sync --no-cache --python /opt/entrepot/bin/python --compile-bytecode --require-hashes requirements-runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY backends backends
COPY s3api s3api
# requirements.lock pins the build backend that builds the wheel.
RUN uv build --no-cache --wheel --require-hashes --build-constraints requirements.lock --out-dir /dist \
    && uv pip install --no-cache --python /opt/entrepot/bin/python --compile-bytecode --no-deps /dist/*.whl

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="Entrepot" \
      org.opencontainers.image.description="A multi-cloud object-storage gateway" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --home-dir /var/lib/entrepot --shell /usr/sbin/nologin entrepot \
    && install --directory --owner entrepot --group entrepot --mode 0700 /var/lib/entrepot
COPY --from=build /opt/entrepot /opt/entrepot
COPY --chmod=0555 conf/container-entrypoint /usr/local/bin/container-entrypoint
ENV PATH=/opt/entrepot/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ENTREPOT_SITE=/var/lib/entrepot/site
USER 10001
VOLUME /var/lib/entrepot
# 9000: the S3 endpoint. 9001: metrics and probes.
EXPOSE 9000 9001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9001/healthz', timeout=2)"]
ENTRYPOINT ["container-entrypoint"]

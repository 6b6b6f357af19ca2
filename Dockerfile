# syntax=docker/dockerfile:1
#
#   docker build --tag holdfast .
#   docker run --rm --volume holdfast:/data holdfast db migrate
#   docker run --rm --volume holdfast:/data holdfast keys create kitchen
#   docker run --publish 8484:8484 --volume holdfast:/data --read-only --tmpfs /tmp holdfast
#
# Agents of your own: --volume ./agents:/agents:ro, and `serve /agents` at the end of the last line.

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /src
RUN python -m venv /opt/build && python -m venv --without-pip /opt/holdfast
COPY deploy/requirements-build.txt deploy/requirements.txt deploy/
RUN /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r deploy/requirements-build.txt
RUN /opt/build/bin/pip --python /opt/holdfast/bin/python install --no-cache-dir --require-hashes --only-binary :all: -r deploy/requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/build/bin/hatchling build --target wheel --directory dist
RUN /opt/build/bin/pip --python /opt/holdfast/bin/python install --no-cache-dir --no-deps --no-index dist/holdfast-*.whl

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="Holdfast" \
      org.opencontainers.image.description="AI agents over the OpenAI API, with conversations that hold" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN install --directory --owner 10001 --group 10001 /data
COPY --from=build /opt/holdfast /opt/holdfast
ENV PATH=/opt/holdfast/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    XDG_CACHE_HOME=/data/.cache \
    HOLDFAST_LISTEN=0.0.0.0:8484 \
    HOLDFAST_STORE=sqlite:////data/holdfast.db \
    HOLDFAST_LOG_FORMAT=json
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8484
# Ready, and not only alive: whoever looks at a container's health wants to send it requests.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8484/readyz', timeout=2)"]
# It is process 1 itself, and drains on SIGTERM; give it 60 seconds (docker stop --time 60).
STOPSIGNAL SIGTERM
ENTRYPOINT ["holdfast"]
CMD ["serve"]

# A server of one graph: not root, the graph in a volume, healthy when it answers.
FROM python:3.12-slim AS build
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --prefix=/install -c constraints.txt '.[server]'

FROM python:3.12-slim
COPY --from=build /install /usr/local
RUN useradd --create-home --uid 10001 omnigraph && mkdir /data && chown omnigraph /data
USER omnigraph
VOLUME /data
# Of many threads each would otherwise keep memory of its own that it has freed.
ENV OMNIGRAPH_BIND=0.0.0.0:8080 OMNIGRAPH_STORE=/data/graph MALLOC_ARENA_MAX=2
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s CMD ["python", "-c", \
    "import os, urllib.request as u; port = os.environ['OMNIGRAPH_BIND'].rpartition(':')[2]; \
u.urlopen(f'http://127.0.0.1:{port}/healthz', timeout=4)"]
ENTRYPOINT ["omnigraph-server"]

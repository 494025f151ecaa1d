# Milepost as one static program and nothing else: no shell, no root.
#
#   docker build -t milepost .
#   docker run --rm --read-only --cap-drop ALL -p 127.0.0.1:7332:7332 milepost
#   docker run --rm --read-only --cap-drop ALL -p 127.0.0.1:7332:7332 -v ./proxy.toml:/etc/milepost/proxy.toml:ro milepost
#
# A server that is started by its command needs what it runs on. Put Milepost into its image then:
#
#   COPY --from=milepost /usr/bin/milepost /usr/bin/milepost
#   ENTRYPOINT ["milepost", "wrap", "--", "node", "server.js"]

# The system that Milepost is built on; nothing of it but the certificates is in the image. A release names it
# by its digest: --build-arg BASE=rust:1.95-alpine@sha256:...
ARG BASE=rust:1.95-alpine
FROM ${BASE} AS build
RUN apk add --no-cache ca-certificates musl-dev
# The list of crates in the program, for scanners.
RUN cargo install --locked cargo-auditable --version 0.7.7
WORKDIR /src
COPY . .
RUN cargo auditable build --profile dist --locked --features fleet-valkey --bin milepost

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/target/dist/milepost /usr/bin/milepost
COPY packaging/docker/proxy.toml /etc/milepost/proxy.toml
COPY LICENSE-APACHE LICENSE-MIT docs/licences.md /usr/share/doc/milepost/
# What has been learned of durations is forgotten with the container, unless a folder is mounted for it.
ENV MILEPOST_STATE_DIR=off
USER 65532:65532
EXPOSE 7332
ENTRYPOINT ["/usr/bin/milepost"]
CMD ["serve", "/etc/milepost/proxy.toml"]

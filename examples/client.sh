#!/bin/sh
# A client of `fretta serve` with curl: sh client.sh http://127.0.0.1:8000 camera-1 a.png b.png
# FRETTA_TOKEN of the environment is sent as the bearer token.
set -eu
url=$1
stream=$2
shift 2

ask() {
    path=$1
    shift
    if [ -n "${FRETTA_TOKEN:-}" ]; then  # from stdin: a token on the command line is seen by all
        printf 'header = "Authorization: Bearer %s"\n' "$FRETTA_TOKEN" |
            curl --silent --show-error --fail-with-body --config - "$@" "$url$path"
    else
        curl --silent --show-error --fail-with-body "$@" "$url$path"
    fi
    echo
}

ask /healthz
for file in "$@"; do
    set -- "$@" --form "images=@$file"
    shift
done
ask /predict --form "stream=$stream" "$@"
ask "/streams/$stream"
ask "/streams/$stream/freeze" --request POST  # predict without learning ...
ask "/streams/$stream/resume" --request POST  # ... and learn again

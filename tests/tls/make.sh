#!/usr/bin/env bash
# Makes the certificates of this folder anew: an authority, a server and a client for a hundred years, a client of another authority. For tests only.
set -euo pipefail
cd "$(dirname "$0")"

authority() { # NAME
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -subj "/CN=$1" \
        -addext keyUsage=critical,keyCertSign -keyout "$1.key" -out "$1.pem"
}

signed() { # NAME AUTHORITY USAGE ALTERNATIVE_NAMES
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
    printf 'extendedKeyUsage=%s\nsubjectAltName=%s\n' "$3" "$4" |
        openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -days 36500 -extfile /dev/stdin -out "$1.pem"
    rm "$1.csr"
}

authority ca
authority other-ca
signed server ca serverAuth DNS:localhost,IP:127.0.0.1,IP:::1
signed client ca clientAuth DNS:client
signed foreign-client other-ca clientAuth DNS:client
openssl pkcs8 -topk8 -v2 aes-256-cbc -in server.key -passout pass:secret -out server-encrypted.key
rm ca.key other-ca.key ./*.srl 2>/dev/null || true

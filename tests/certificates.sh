#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Certificates for tests, real ones, made by openssl.
#
#     certificates.sh FOLDER authority NAME...
#         NAME.pem, NAME.key: an authority of its own.
#     certificates.sh FOLDER certificate NAME AUTHORITY SUBJECT ALTERNATIVE [DAYS]
#         NAME.pem, NAME.key: signed by AUTHORITY, with SUBJECT ("/" for none, "/CN=x") and the
#         names of ALTERNATIVE ("DNS:a.example,IP:127.0.0.1"). For 0 DAYS: it is over at once.
#         The same again renews it: the key is replaced first.
set -eu

cd "$1"
what=$2
shift 2
new_key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"

{
    case $what in
    authority)
        for name; do
            # shellcheck disable=SC2086 # several words
            openssl req -x509 $new_key -subj "/CN=$name" -keyout "$name.key" -out "$name.pem" -days 2 \
                -addext keyUsage=critical,keyCertSign,cRLSign
        done
        ;;
    certificate)
        # As RFC 5280 has it: Python 3.13 takes no other.
        printf 'subjectAltName=critical,%s\nauthorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n' "$4" >"$1.ext"
        # shellcheck disable=SC2086
        openssl req $new_key -subj "$3" -keyout "$1.key" -out "$1.csr"
        openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial \
            -days "${5:-2}" -extfile "$1.ext" -out "$1.pem"
        ;;
    esac
} >openssl.log 2>&1

#!/bin/sh
# Dorylus on two machines of one network. Both have Dorylus, Ray and Python in the same versions, and see the same folder
# under the same path (NFS, sshfs). Explained in docs/cluster.md.
#
#   on the first    sh two-laptops.sh head 192.168.1.10
#                   scp ~/.ray/auth_token second:.ray/auth_token    # after: ssh second mkdir -p -m 700 .ray
#   on the second   sh two-laptops.sh join 192.168.1.10 192.168.1.11
#   on the first    sh two-laptops.sh train /shared/graph
set -eu
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
umask 077 # the token is for its owner only

case "${1:-}" in
head) # MY_ADDRESS
    ray get-auth-token --generate >/dev/null
    chmod 600 ~/.ray/auth_token
    ray start --head --node-ip-address "$2" --port 6379 --dashboard-host 127.0.0.1
    ;;
join) # ADDRESS_OF_HEAD MY_ADDRESS
    ray start --address "$2:6379" --node-ip-address "$3"
    ;;
train) # STORE
    dorylus doctor --cluster ray --threads "${THREADS:-2}" --store "$2"
    dorylus train "$2" --cluster ray --servers 2 --threads "${THREADS:-2}" --run-dir "$2-run"
    ;;
*)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac

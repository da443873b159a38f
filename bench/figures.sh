#!/usr/bin/env bash
# Takes every figure of docs/benchmarks.md on this machine, each with its receipt:
#
#   bench/figures.sh [RECEIPTS [DIR]]
#
# RECEIPTS is a JSON lines file that is appended to (default bench/receipts/new.jsonl), DIR a directory
# on the disk to be measured (default: the one for temporary files). Needs bin/millrace; a quiet
# machine gives better numbers. Ceilings of the machine come first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p bench/receipts
receipts="${1:-bench/receipts/new.jsonl}"
dir="${2:-${TMPDIR:-/tmp}}"
repeat="${REPEAT:-5}"

row() {
  printf '\n## %s\n' "$*"
  bin/millrace bench "$@" --self --self-dir "$dir" --repeat "$repeat" --receipts "$receipts" --progress never --quiet | grep -v '^note'
}

bin/millrace bench ceiling --json "${receipts%.jsonl}-ceiling.json" --progress never "$dir"
row produce -n 5M --durable written
row produce -n 5M --durable durable
row produce -n 3M --batch 1 --durable written
row produce -n 3M --lockstep --durable written
row produce -n 3M --lockstep --durable durable
row produce -n 100k --batch 1 --clients 100 --lockstep --durable durable
row produce -n 100k --batch 1 --clients 100 --connections 1 --lockstep --durable durable
row consume -n 5M --durable written --verify
row consume -n 3M --clients 4 --durable written --verify
row latency -n 30k --durable written
row latency -n 30k --durable durable
row e2e -n 1M --durable durable --verify
printf '\n## idle --clients 2000\n'
bin/millrace bench idle --clients 2000 --self --receipts "$receipts" --progress never --quiet | grep -v '^note'
bin/millrace bench ratio --self --self-dir "$dir" --repeat "$repeat" --json "${receipts%.jsonl}-ratio.json" --progress never --quiet

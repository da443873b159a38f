# millrace: everything a fresh clone needs is Go, git and a POSIX shell.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory

GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.7.0
FUZZTIME    ?= 5s
BENCHTIME   ?= 1s
VERSION     ?= 0.1.0-dev
REVISION    ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
LDFLAGS     := -X main.version=$(VERSION) -X main.revision=$(REVISION)

.DEFAULT_GOAL := help
.PHONY: help build run test race fmt vet lint fuzz house bench figures check generate clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build bin/millrace (static, reproducible)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/millrace ./cmd/millrace

run: build ## Build, then run a broker ready to use (data in ./data)
	bin/millrace server --data-dir ./data

test: ## Run all tests
	$(GO) test ./...

race: ## Run all tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race ./...

fmt: ## Fail when a file is not gofmt-clean
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then printf 'not gofmt-clean (gofmt -w them):\n%s\n' "$$unformatted" >&2; exit 1; fi

vet: ## Run go vet
	$(GO) vet ./...

lint: ## Run staticcheck
	$(GO) run $(STATICCHECK) ./...

fuzz: ## Fuzz every target for FUZZTIME each (default 5s)
	@list=$$($(GO) test -list '^Fuzz' ./... | awk '/^Fuzz/ { name[++n] = $$1 } /^ok/ { for (i = 1; i <= n; i++) print $$2, name[i]; n = 0 }'); \
	if [ -z "$$list" ]; then echo 'fuzz: no target found' >&2; exit 1; fi; \
	while read -r pkg target; do \
	  echo "fuzz $$pkg $$target"; \
	  $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "$$pkg" < /dev/null; \
	done <<< "$$list"

house: ## Check the house rules (floors, sizes, names, goroutines)
	$(GO) test -count=1 -run '^TestHouse' .

bench: ## Run the Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...

check: fmt vet lint test race ## All of fmt, vet, lint, test and race

figures: build ## Take every figure of docs/benchmarks.md (some minutes, a quiet machine)
	bench/figures.sh

generate: ## Write the generated documents (docs/protocol.md, docs/cli.md, docs/config.md)
	$(GO) generate ./...

clean: ## Remove build results (never ./data)
	rm -rf bin

# Every check of the project, by one name each. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Systems the module must build for. The first is what the tests run on.
SYSTEMS := linux darwin windows

# Every Go module but the root: comparison code with dependencies of its own.
OTHER_MODULES := $(patsubst %/go.mod,%,$(wildcard */go.mod */*/go.mod))

# Packages with tests that count allocations or runs, which the race detector changes.
COUNTED := ./stm ./actor

# The check of the clients of all languages is a step of its own: it takes both cores, and needs no race detector.
CLIENTS := ./clients/check
PACKAGES = $$(go list ./... | grep -v '/clients/check$$')

# How long one test binary may take; a soak multiplies the doses, so it gets longer.
TIMEOUT := 8m
CLIENTS_TIMEOUT := 15m
SOAK_TIMEOUT := 3h
# How long each fuzz target runs in a soak.
FUZZTIME := 3m

# Test binaries carry no revision: asking for it fails where the tree belongs to somebody else.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: tools lint ## every check: format, vet, staticcheck, all tests with the race detector
	@echo '== go test -race; what counts, and other modules, without -race'
	@{ go test -race -shuffle=on -timeout $(TIMEOUT) -json $(PACKAGES); \
	  go test -short -shuffle=on -timeout $(TIMEOUT) -json $(COUNTED); \
	  for dir in $(OTHER_MODULES); do (cd $$dir && go test -shuffle=on -timeout $(TIMEOUT) -json ./...); done; \
	} | go run ./scripts/testreport
	@$(MAKE) --no-print-directory clients

.PHONY: clients
clients: ## the clients of all languages: their own tests, their samples, and all of them together
	@echo '== clients: TypeScript, Python, Rust, Java and Go'
	@go test -count=1 -timeout $(CLIENTS_TIMEOUT) -json $(CLIENTS) | go run ./scripts/testreport

.PHONY: lint
lint: fmt vet modules ## the checks that run no test
	@echo '== staticcheck'
	@go run $(STATICCHECK) ./...

.PHONY: fmt
fmt: ## fail when a file is not formatted
	@echo '== gofmt'
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then \
	  echo "not formatted; run gofmt -w on:"; echo "$$files"; exit 1; fi

.PHONY: vet
vet: ## go vet for every system, and a tidy go.mod
	@for os in $(SYSTEMS); do echo "== go vet, GOOS=$$os"; GOOS=$$os go vet ./...; done
	@echo '== go mod tidy -diff'
	@go mod tidy -diff

.PHONY: modules
modules: ## vet and build the other modules of the repository
	@for dir in $(OTHER_MODULES); do echo "== go vet and go build, $$dir"; \
	  (cd $$dir && go vet ./... && go build -o /dev/null ./...); done

.PHONY: tools
tools: ## install the programs that the tests start, or say what to install
	@echo '== programs that the tests start'
	@scripts/tools

.PHONY: soak
soak: tools ## full doses: long tests, then minutes of every fuzz target
	@echo '== go test -race, full doses'
	@LATCHKEY_SOAK=1 go test -race -shuffle=on -count=1 -timeout $(SOAK_TIMEOUT) -json $(PACKAGES) | go run ./scripts/testreport
	@go test -race -count=20 -timeout $(SOAK_TIMEOUT) -json -run 'Together|Liars' $(CLIENTS) | go run ./scripts/testreport
	@$(MAKE) --no-print-directory clients
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: tools ## measure against peers; writes docs/benchmarks*.md
	@if [ ! -f bench/go.mod ]; then echo "make bench: there is no bench module in this tree"; exit 1; fi
	@cd bench && go run . --only memory,durable,contended,million,expiry,held,lmx,inproc --write ../docs/benchmarks.md
	@cd bench && go run . --only map,cache --write ../docs/benchmarks-map-cache.md
	@cd bench && go run . --only clients --write ../docs/benchmarks-clients.md

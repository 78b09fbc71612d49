# Everything a fresh machine needs: `make run` starts a cluster on this machine, `make test` runs the tests.
SHELL        := /bin/bash
.SHELLFLAGS  := -euo pipefail -c
.DEFAULT_GOAL := build
export CGO_ENABLED := 0

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X main.version=$(VERSION)
TESTFLAGS ?=
# Packages whose concurrency the race detector watches. It needs cgo, which nothing else here does.
RACE_PKGS ?= ./journal/... ./entrylog/... ./bookie/... ./ledgerclient/... ./offload/... ./internal/...
FUZZTIME  ?= 5s
CRASH_ROUNDS ?= $(or $(ROUNDS),60)
LINT     := $(GO) tool -modfile=tools/lint/go.mod

.PHONY: build run test race invariants modelcheck modelcheck-mutants fuzz-smoke crash e2e overload offload-big bench bench-offload bench-compare lint fmt vet vuln arch check clean help

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

build: ## bin/bindery and bin/iobench, static
	@mkdir -p bin
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/bindery ./tools/iobench

run: build ## a cluster of three bookies on this machine, data in ./bindery-data; Ctrl-C stops it
	bin/bindery standalone

test: vet ## go vet and every package's tests
	$(GO) test -timeout 20m $(TESTFLAGS) ./...

race: ## the core packages under the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 25m $(TESTFLAGS) $(RACE_PKGS)

invariants: ## the tests with internal assertions switched on
	$(GO) test -tags invariants -timeout 20m $(TESTFLAGS) ./...

modelcheck: ## every interleaving of small worlds on the protocol's cores, large worlds up to a bound, then random walks
	$(GO) run ./tools/modelcheck -large -walks 2000 $(MODELCHECKFLAGS)

modelcheck-mutants: ## plant one protocol bug after the other and show what finds it
	$(GO) run -tags mutants ./tools/modelcheck -mutants $(MODELCHECKFLAGS)

fuzz-smoke: ## every fuzz target for FUZZTIME (5s)
	FUZZTIME=$(FUZZTIME) .ci/fuzz

crash: ## kill -9 the real binary at named points for CRASH_ROUNDS rounds
	CRASH_ROUNDS=$(CRASH_ROUNDS) $(GO) test -tags crash -count=1 -timeout 30m -v ./test/crash/...

e2e: build ## drive the real binary from outside
	BINDERY_BIN=$(CURDIR)/bin/bindery IOBENCH_BIN=$(CURDIR)/bin/iobench $(GO) test -tags e2e -count=1 -timeout 40m -v ./test/e2e/...

overload: build ## one bookie with more than it can take, and its memory budget, for DURATION (1m)
	BINDERY_BIN=$(CURDIR)/bin/bindery $(GO) test -tags overload -count=1 -timeout 2h -v ./test/overload -overload.duration $(or $(DURATION),1m)

offload-big: build ## a ledger of SIZE (64MiB) to object stores and back, with everything killed ROUNDS (4) times; SEED repeats
	BINDERY_BIN=$(CURDIR)/bin/bindery $(GO) test -tags offloadbig -count=1 -timeout 6h -v ./test/offload -offload.size $(or $(SIZE),64MiB) -offload.rounds $(or $(ROUNDS),4) -offload.seed $(or $(SEED),0)

sim: ## simulate SEEDS (300) runs of each layer, or of LAYER=cores|cluster; prints the seeds that fail
	$(GO) run ./tools/sim -seeds $(or $(SEEDS),300) -layer '$(LAYER)' -first $(or $(FIRST),1)

sim-ci: ## 300 seeds of the cores layer, and a minute of whole clusters
	$(GO) test -count=1 -run '^Test(Cluster|Seeds|Replay)$$' ./internal/bktest/cores ./internal/bktest -args -sim.seed=1

sim-seed: ## run one SEED of LAYER again and print its whole history
	$(GO) test -count=1 -run '^Test(Cluster|Seeds)$$' ./internal/bktest$(if $(filter cores,$(LAYER)),/cores) -args -sim.seed=$(SEED) -sim.seeds=1 -sim.debug

sim-mutants: ## plant protocol bugs and see that the simulator finds each within SEEDS (2000) runs
	$(GO) run ./tools/sim -mutants -seeds $(or $(SEEDS),2000) -only '$(ONLY)' -layer '$(LAYER)'

.PHONY: interop interop-short
interop: build ## Apache's BookKeeper and Pulsar against ours, in a real ZooKeeper and in etcd (JDK 17 and Maven; about 30 minutes)
	BINDERY_BIN=$(CURDIR)/bin/bindery $(GO) test -tags interop -count=1 -timeout 100m -v ./test/interop

interop-short: build ## a part of it: ZooKeeper, one version of BookKeeper, fewer pairs (about 4 minutes)
	BINDERY_BIN=$(CURDIR)/bin/bindery $(GO) test -tags interop -short -count=1 -timeout 40m -v ./test/interop

bench: build ## ours beside Apache BookKeeper and the disk itself, interleaved; BENCHFLAGS=-plan says what and how long
	$(GO) run ./bench $(BENCHFLAGS)

bench-offload: ## reads, writes and repairs of the tier beside raw requests to the same S3 server, interleaved
	$(GO) test -run '^$$' -bench '^BenchmarkTier' -benchtime 1x -timeout 1h ./offload

bench-compare: ## benchstat of the working tree against BASE (default HEAD~1)
	bench/compare $(or $(BASE),HEAD~1)

.PHONY: bench-guard bench-guard-record
bench-guard: ## hot paths against the recorded run: allocations and system calls per add are limits, times are shown
	$(GO) run ./bench/guard

bench-guard-record: ## write bench/guard/recorded.txt anew, on a quiet machine
	$(GO) run ./bench/guard -record

lint: ## gofmt and golangci-lint
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not gofmt-ed:"; echo "$$out"; exit 1; fi
	$(LINT) golangci-lint run --allow-parallel-runners

fmt: ## gofmt everything
	gofmt -w $$(git ls-files '*.go')

vet:
	$(GO) vet ./...
	$(GO) vet -tags 'e2e crash overload interop offloadbig' ./test/...

vuln: ## known vulnerabilities in what is linked in (needs the vulnerability database)
	$(LINT) govulncheck ./...

arch: ## import layers, package comments, file sizes
	$(GO) test -count=1 ./internal/arch

check: lint arch test race invariants fuzz-smoke crash e2e ## all of it, before a merge

clean:
	rm -rf bin

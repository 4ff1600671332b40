# All commands for people and CI. Tool versions are pinned. Nothing is installed outside
# this folder, except by setup.sh if pip reaches no index.

ifndef VERSION
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
endif
FUZZTIME   ?= 20s
DIST       ?= dist
SHA256SUM   = $(shell command -v sha256sum || echo shasum -a 256)
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.1.4

GO_DIRS   = $(wildcard executor relay shared colab-bootstrap config)
PY_FILES  = $(shell find $(GO_DIRS) -name '*.py' -not -path '*/testdata/*')
EXECUTORS = linux-amd64 linux-arm64
RELAYS    = $(EXECUTORS) darwin-arm64 darwin-amd64 windows-amd64

# -buildid= and -buildvcs=false make builds reproducible in any checkout.
BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$(VERSION)$(if $(RELEASES), -X main.releases=$(RELEASES))"

# Tests use these programs; without the variables they build their own.
PROGRAMS = EXECUTOR_BIN=$(CURDIR)/bin/executor RELAY_BIN=$(CURDIR)/bin/colab-relay

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help build python demo test check vuln soak bench fuzz release verify clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

build: ## build bin/executor and bin/colab-relay, static
	$(BUILD) -o bin/executor ./executor
	$(BUILD) -o bin/colab-relay ./relay

python: ## set up the Python environments of the tests and the demo, in .python
	@shared/stacks/setup.sh .python

demo: build python ## show an MCP host driving a real kernel through both programs
	@go run ./shared/e2e/demo

test: build python ## run all tests, with the race detector, on both kernel stacks
	@shared/stacks/pytest.sh .python shared/kernelpy/tests
	$(PROGRAMS) go test -race -timeout 15m ./shared/e2e ./... # the longest first

check: python ## check format, vet, staticcheck, Python files and go.mod; changes nothing
	@unformatted=$$(gofmt -l $(GO_DIRS)) && if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):" $$unformatted; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	go mod tidy -diff
	@shared/stacks/check.sh .python $(PY_FILES)

vuln: ## look for known vulnerabilities, in an online database
	go run $(GOVULNCHECK) ./...

soak: build python ## run all tests with the long random suites
	$(PROGRAMS) SOAK=1 go test -race -count=1 -timeout 3h ./...

bench: build ## measure all in one table, 8 minutes; BENCH_ONLY='quick|far' a part; BENCH_KEEP=1 keeps docs/BENCH.md
	@shared/stacks/setup.sh .python bridge
	@$(PROGRAMS) go run ./shared/e2e/bench $(if $(BENCH_ONLY),-only '$(BENCH_ONLY)') $(if $(BENCH_KEEP),-keep docs/BENCH.md)

fuzz: ## run every fuzz target for FUZZTIME (20s)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' $(GO_DIRS) | sed 's/:func / /' | while read -r file target; do \
		echo "fuzz $$target in $$(dirname $$file)"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file) || exit 1; \
	done

release: ## build dist/: static programs for all platforms, SHA256SUMS; with RELEASES=URL also cell and notebook
	rm -rf $(DIST) && mkdir -p $(DIST)
	@for p in $(EXECUTORS); do echo "executor-$$p"; \
		GOOS=$${p%-*} GOARCH=$${p#*-} $(BUILD) -o $(DIST)/executor-$$p ./executor || exit 1; done
	@for p in $(RELAYS); do exe=; [ $${p%-*} != windows ] || exe=.exe; echo "relay-$$p$$exe"; \
		GOOS=$${p%-*} GOARCH=$${p#*-} $(BUILD) -o $(DIST)/relay-$$p$$exe ./relay || exit 1; done
	cd $(DIST) && $(SHA256SUM) executor-* relay-* >SHA256SUMS && cat SHA256SUMS
ifneq ($(RELEASES),)
	go run ./colab-bootstrap/fill -releases $(RELEASES) -version $(VERSION) <$(DIST)/SHA256SUMS >$(DIST)/cell.ipy
	go run ./colab-bootstrap/fill -releases $(RELEASES) -version $(VERSION) -notebook <$(DIST)/SHA256SUMS >$(DIST)/colab-relay.ipynb
endif

verify: ## check that two builds of a release are identical
	@a=$$(mktemp -d) && b=$$(mktemp -d) && trap 'rm -rf '"$$a $$b" EXIT && cp -r $(GO_DIRS) go.mod go.sum Makefile $$b/ && \
		$(MAKE) --no-print-directory release VERSION=$(VERSION) DIST=$$a/dist >/dev/null && \
		GOCACHE=$$b/cache $(MAKE) --no-print-directory -C $$b release VERSION=$(VERSION) DIST=$$b/dist >/dev/null && \
		cat $$a/dist/SHA256SUMS && diff $$a/dist/SHA256SUMS $$b/dist/SHA256SUMS && echo "reproducible"

clean: ## delete built files; with PYTHON=1 also .python
	rm -rf bin dist $(if $(PYTHON),.python)

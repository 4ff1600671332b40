# All commands for people and CI. Tool versions are pinned. Nothing is installed outside
# this folder, except by setup.sh if pip reaches no index.

ifndef VERSION
VERSION    := $(shell config/packaging/version.sh)
endif
FUZZTIME   ?= 20s
MINUTES    ?= 30
SEED       ?=
DIST       ?= dist
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.1.4
GOTESTSUM   = gotest.tools/gotestsum@v1.13.0

GO_DIRS   = $(wildcard executor relay shared colab-bootstrap config)
PY_FILES  = $(shell find $(GO_DIRS) -name '*.py' -not -path '*/testdata/*')
EXECUTORS = linux-amd64 linux-arm64
RELAYS    = $(EXECUTORS) darwin-arm64 darwin-amd64 windows-amd64 windows-arm64

# The names of the packages of a release. Nowhere else are they set.
PACKAGE          = colab-relay-mcp
EXECUTOR_PACKAGE = colab-relay-executor

# The URL of the folder that holds a folder for each version, such as
# https://github.com/OWNER/REPO/releases/download. A release needs it; none waives it, and
# omits the files that name it.
RELEASES ?=
ADDRESS   = $(filter-out none,$(RELEASES))

# -buildid= and -buildvcs=false make builds reproducible in any checkout.
BUILD = CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$(VERSION)$(if $(ADDRESS), -X main.releases=$(ADDRESS))"

# Tests use these programs; without the variables they build their own.
PROGRAMS = EXECUTOR_BIN="$(CURDIR)/bin/executor" RELAY_BIN="$(CURDIR)/bin/colab-relay"

# A test that fails is run again, twice at most, unless more than four failed or the race
# detector found something. One that passes then stands in .test/flaky: a defect all the same.
TEST = $(PROGRAMS) go run $(GOTESTSUM) --format pkgname --format-hide-empty-pkg --hide-summary skipped \
	--rerun-fails=2 --rerun-fails-max-failures=4 --rerun-fails-abort-on-data-race \
	--rerun-fails-report=.test/flaky --jsonfile=.test/events.json

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help build python python-short check-go check-python demo demo-picture test test-long test-busy check lines vuln soak load bench interop hosts frameworks proxies browser fuzz programs release verify clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

build: ## build bin/executor and bin/colab-relay, static
	$(BUILD) -o bin/executor ./executor
	$(BUILD) -o bin/colab-relay ./relay

python: ## set up the Python environments of all tests, in .python
	@shared/stacks/setup.sh .python

python-short: # those of make test and make check
	@shared/stacks/setup.sh .python old tools notebook

demo: build ## show an MCP host driving a real kernel through both programs
	@shared/stacks/setup.sh .python old
	@go run ./shared/e2e/demo

demo-picture: build ## run the demo, and write docs/session.svg, README's picture
	@shared/stacks/setup.sh .python old
	@go run ./shared/e2e/demo -svg docs/session.svg

# Vet is part of make check. The longest package comes first. Four run at once, because
# they often wait. All have the race detector: most of the time goes to kernels and programs,
# and a second run without it would compile everything twice.
test: build python-short ## run the short tests, which decide in five minutes
	@mkdir -p .test && rm -f .test/*
	@shared/stacks/pytest.sh -short .python shared/kernelpy/tests
	$(TEST) --packages="./shared/e2e ./..." -- -short -race -vet=off -p 4 -timeout 20m

test-long: build python ## run all tests, with the race detector, on both kernel stacks, 30 minutes
	@mkdir -p .test && rm -f .test/*
	@shared/stacks/pytest.sh .python shared/kernelpy/tests
	$(TEST) --packages="./shared/e2e ./..." -- -race -vet=off -p 4 -timeout 40m

check: check-go check-python ## check format, vet, staticcheck, Python files and go.mod; changes nothing

check-go:
	@unformatted=$$(gofmt -l $(GO_DIRS)) && if [ -n "$$unformatted" ]; then echo "not formatted (run gofmt -w):" $$unformatted; exit 1; fi
	go vet ./...
	go vet -tags release ./config/...
	go vet -tags chromium ./shared/e2e/browser
	go run $(STATICCHECK) ./...
	go run $(STATICCHECK) -tags chromium ./shared/e2e/browser
	go mod tidy -diff

check-python: python-short
	@shared/stacks/check.sh .python $(PY_FILES)

# Files of other platforms count, too. What no program links is tests and what tests use.
lines: ## count the lines of Go that programs link, and those of tests
	@linked=$$(go list -deps -f '{{if and .Module .Module.Main}}{{$$d := .Dir}}{{range .GoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{range .IgnoredGoFiles}}{{$$d}}/{{.}}{{"\n"}}{{end}}{{end}}' ./executor ./relay ./config/packaging | \
		grep '\.go$$' | grep -v '_test\.go$$' | tr '\n' '\0' | xargs -0 cat | wc -l) && \
	all=$$(find $(GO_DIRS) -name '*.go' -not -path '*/testdata/*' -print0 | xargs -0 cat | wc -l) && \
	echo "programs: $$linked lines; tests and their helpers: $$((all - linked)) lines"

vuln: ## look for known vulnerabilities, in an online database
	go run $(GOVULNCHECK) ./...

soak: build python ## break programs, kernel, network, disks and chunked runs at random for MINUTES (30), and check that nothing is lost or wrong; SEED=N repeats a run
	@.python/new/bin/python shared/kernelpy/tests/oracle.py $(or $(SEED),$$(date +%s)) 1000000 $(MINUTES) & oracle=$$!; \
		$(PROGRAMS) go run ./shared/e2e/faults -minutes $(MINUTES) $(if $(SEED),-seed $(SEED)); faults=$$?; \
		wait $$oracle && exit $$faults

load: build ## let 100 relays work on one executor, without faults, for two minutes or more
	@shared/stacks/setup.sh .python old
	@$(PROGRAMS) go run ./shared/e2e/faults -crowd 100 -minutes 2

test-busy: build $(if $(ONLY),python) ## run the short tests beside four busy loops; ONLY=./relay/jobs all tests of that package, ten times
	$(PROGRAMS) shared/stacks/besideload.sh 4 $(if $(ONLY),go test -race -vet=off -count=10 -timeout 3h $(ONLY),"$(MAKE)" test)

bench: build ## measure all in one table, 8 minutes; BENCH_ONLY='quick|far' a part; BENCH_KEEP=1 keeps docs/BENCH.md
	@shared/stacks/setup.sh .python old bridge
	@$(PROGRAMS) go run ./shared/e2e/bench $(if $(BENCH_ONLY),-only '$(BENCH_ONLY)') $(if $(BENCH_KEEP),-keep docs/BENCH.md)

interop: build python ## check the relay with the official MCP clients and Jupyter's packages, installed in .interop, 4 minutes; INTEROP_ONLY=notebooks a part
	@shared/e2e/interop/setup.sh .interop $(INTEROP_ONLY)
	@$(PROGRAMS) go run ./shared/e2e/interop $(if $(INTEROP_ONLY),-only '$(INTEROP_ONLY)')

hosts: build python ## check what the models of Claude Code, Codex, Gemini CLI and OpenCode get of the relay's answers; installs them in .hosts, 4 minutes; HOSTS_ONLY=codex a part
	@shared/e2e/hosts/setup.sh .hosts
	@$(PROGRAMS) go run ./shared/e2e/hosts $(if $(HOSTS_ONLY),-only '$(HOSTS_ONLY)')

frameworks: build python ## check what the models of agents get of the relay's answers, in fourteen frameworks; installs them in .frameworks, 6 minutes; FRAMEWORKS_ONLY=langchain a part
	@shared/e2e/hosts/frameworks/setup.sh .frameworks $(FRAMEWORKS_ONLY)
	@$(PROGRAMS) go run ./shared/e2e/hosts -frameworks $(if $(FRAMEWORKS_ONLY),-only '$(FRAMEWORKS_ONLY)')

proxies: build python ## check the relay with nginx, haproxy, squid and tinyproxy between it and an executor; installs them if it may, 6 minutes; PROXIES_ONLY=nginx a part
	@shared/e2e/proxies/setup.sh
	@$(PROGRAMS) go run ./shared/e2e/proxies $(if $(PROXIES_ONLY),-only '$(PROXIES_ONLY)')

browser: build python ## check the relay with a stand-in of Colab's page in a real Chromium, which it installs if it may, 1 minute
	@shared/e2e/browser/setup.sh
	$(PROGRAMS) go test -race -tags chromium -count=1 -timeout 15m ./shared/e2e/browser

fuzz: ## run every fuzz target for FUZZTIME (20s)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' $(GO_DIRS) | sed 's/:func / /' | while read -r file target; do \
		echo "fuzz $$target in $$(dirname $$file)"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s ./$$(dirname $$file) || exit 1; \
	done

programs: ## build the programs for all platforms, static, in dist/
	@mkdir -p $(DIST)
	@for p in $(EXECUTORS); do echo "executor-$$p"; \
		GOOS=$${p%-*} GOARCH=$${p#*-} $(BUILD) -o $(DIST)/executor-$$p ./executor || exit 1; done
	@for p in $(RELAYS); do exe=; [ $${p%-*} != windows ] || exe=.exe; echo "relay-$$p$$exe"; \
		GOOS=$${p%-*} GOARCH=$${p#*-} $(BUILD) -o $(DIST)/relay-$$p$$exe ./relay || exit 1; done

release: ## build all files of a release in dist/; needs RELEASES=URL or RELEASES=none
	@[ -n "$(RELEASES)" ] || { echo "make release: RELEASES is empty: set it to the URL of the folder that will hold the folder $(VERSION), or to none for a release without cell, notebook and what else names that URL" >&2; exit 1; }
	rm -rf $(DIST)
	@$(MAKE) --no-print-directory programs
	go run ./config/packaging -version $(VERSION) -releases "$(ADDRESS)" -package $(PACKAGE) -executor-package $(EXECUTOR_PACKAGE) -programs $(DIST) -dist $(DIST)
	@rm -f $(DIST)/relay-*

verify: ## check that two builds of a release are identical, and install it in every way
	@PACKAGE=$(PACKAGE) EXECUTOR_PACKAGE=$(EXECUTOR_PACKAGE) config/packaging/verify.sh $(if $(findstring dev,$(VERSION)),v0.1.0-rc.1,$(VERSION))

clean: ## delete built files; with PYTHON=1 also .python, .interop, .hosts and .frameworks
	rm -rf bin dist $(if $(PYTHON),.python .interop .hosts .frameworks)

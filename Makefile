# One entry point for people and CI. `make` lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# VERSION goes into the binary.
VERSION := $(shell scripts/version)
# Where make install puts what it installs; DESTDIR comes before it.
PREFIX ?= /usr/local
DIST_PLATFORMS ?= linux/amd64 linux/arm64
KILLS ?= 10000
MINUTES ?= 60
FUZZTIME ?= 60s
GO_FILES = $(shell git ls-files --cached --others --exclude-standard '*.go' ':!gen' ':!internal/gen')
# Where need-go puts a Go if the machine has none that will do.
export PATH := $(CURDIR)/tools/go/.bin:$(PATH)
STATIC = CGO_ENABLED=0 go build -trimpath
# cmd/tend/flags has packages in which speed is nothing compiled without inlining: 0.6 MB less.

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 22

.PHONY: build
build: need-go ## Build bin/tend, one static binary
	@mkdir -p bin
	$(STATIC) -ldflags '-s -w' -o bin/tend-keeper ./cmd/tend-keeper
	go run ./cmd/tend-keeper/pack bin/tend-keeper internal/core/embedded/tend-keeper.lz4
	@rm bin/tend-keeper
	$(STATIC) $$(<cmd/tend/flags) -ldflags '-s -w -X main.version=$(VERSION)' -o bin/tend ./cmd/tend

.PHONY: install
install: ## Install bin/tend, manual pages and completions below PREFIX, /usr/local; builds it first, if needed
	@[ -x bin/tend ] || $(MAKE) build
	@scripts/make-install '$(DESTDIR)' '$(PREFIX)'

.PHONY: test
test: need-go ## Run everything that CI runs; installs what it lacks (ONLY='NAME' runs a step)
	@scripts/test $(if $(ONLY),only '$(ONLY)')

.PHONY: check
check: need-go ## Run what CI runs without its slow suites: minutes, and Go is enough
	@scripts/test check $(if $(ONLY),only '$(ONLY)')

.PHONY: race
race: need-go ## Test every package under the race detector: a quarter of an hour (ONLY='NAME' runs a step)
	@scripts/test race $(if $(ONLY),only '$(ONLY)')

.PHONY: fmt-check
fmt-check: need-go
	@out=$$(gofmt -l $(GO_FILES)); if [ -n "$$out" ]; then echo "run 'make fmt'; not formatted:"; echo "$$out"; exit 1; fi

# go tool ends with 0 if the tool is killed, as for want of memory; go run does not.
.PHONY: lint
lint: need-go ## Run staticcheck, pinned in tools/lint
	go run -modfile=tools/lint/go.mod honnef.co/go/tools/cmd/staticcheck ./...

.PHONY: e2b
e2b: build ## Run the E2B suites: raw, npm, PyPI, by domain (ONLY=js picks one)
	@test/conformance/e2b/run $(ONLY)

.PHONY: clients
clients: build ## Run other people's clients of E2B, all of them (ONLY=openai picks one)
	@test/conformance/agents/run $(ONLY)
	@$(if $(ONLY),,test/conformance/interpreter/run faults steps jupyter older js smolagents crewai langchain && test/conformance/e2b/run names && test/conformance/sandboxd/run)

.PHONY: clients-newest
clients-newest: ## Say which pinned clients of the suites have a newer version; asks npm and PyPI
	@PATH="$$(scripts/node):$$PATH" test/conformance/newest

.PHONY: vendor-suites
vendor-suites: build ## Run E2B's own suites from a checkout of E2B or code-interpreter in DIR (ONLY=js picks one)
	@test/conformance/$(if $(wildcard $(DIR)/chart_data_extractor),interpreter,e2b)/vendor/run '$(DIR)' $(ONLY)

.PHONY: harbor
harbor: build ## Have Harbor run tasks in tend's sandboxes, as root on Debian: some minutes
	@test/conformance/harbor/run

.PHONY: langsmith
langsmith: build ## Run the LangSmith suites: js, upgrade, kill, python (ONLY=js picks one)
	@test/conformance/langsmith/run $(ONLY)

.PHONY: mastra
mastra: need-go ## Build the npm packages @tend/client and @tend/mastra
	@scripts/packages build

.PHONY: healer
healer: build ## Heal broken apps, with good, bad and hostile models (ONLY=03 picks some)
	@test/conformance/healer/run $(ONLY)

.PHONY: conformance-distant
conformance-distant: build ## Run the released distant command line; cargo installs it, which takes minutes
	@test/conformance/distant/real

.PHONY: bench
bench: need-go build ## Measure against bare fork+exec and pipes (RECORD=NAME keeps the figures)
	go run ./bench $(if $(BESIDE),-beside '$(BESIDE)') $(if $(RECORD),-record '$(RECORD)' -only .)

.PHONY: soak
soak: need-go build ## Kill KILLS=10000 roles, and resume streams, with zeros at the end
	@scripts/soak $(KILLS)

.PHONY: noise
noise: need-go build ## Make noise that is no fault for MINUTES=60; nothing may be restarted or repaired
	NOISE_MINUTES=$(MINUTES) go test -count=1 -v -timeout $$(($(MINUTES) + 20))m ./test/noise

.PHONY: fuzz
fuzz: need-go build ## Run each fuzz target for FUZZTIME=60s (ONLY=keeper picks some)
	@scripts/fuzz $(FUZZTIME) $(ONLY)

.PHONY: gen
gen: need-go ## Generate gen/, internal/gen/ and the reference from proto/, and with a Python what sdk/python has of it
	go -C tools run ./protogen -I ../proto -out ../gen -only tend/
	go -C tools run ./protogen -I ../proto -reference ../docs/reference/api.md -only tend/
	for only in envd sandboxd; do go -C tools run ./protogen -I ../proto -out ../internal/gen -only $$only/ -options module=github.com/tend-run/tend/internal/gen || exit 1; done
	@! command -v python3 >/dev/null || python3 sdk/python/gen.py

.PHONY: gen-ts
gen-ts: need-go ## Generate sdk/js/src/gen from proto/; Node.js is needed
	@scripts/packages gen

.PHONY: gen-python
gen-python: ## Generate what sdk/python has of proto/, and its synchronous half; Python is needed
	@scripts/python gen

.PHONY: page
page: need-go ## Build internal/protocol/page/dist, the page at /ui/, from sdk/web; Node.js is needed
	@scripts/packages dist

.PHONY: fmt
fmt: need-go ## Format the Go code
	gofmt -w $(GO_FILES)

.PHONY: dist
dist: need-go ## Build archives, deb, rpm, image, SBOM and checksums into dist/
	@VERSION='$(VERSION)' scripts/dist $(DIST_PLATFORMS)

.PHONY: image-test
image-test: need-go ## Build Dockerfiles with tend and with buildah, and compare files, owners, modes, variables and commands
	@scripts/install buildah=buildah
	@CGO_ENABLED=0 go test ./test/conformance/dockerfiles -count=1 -buildah

.PHONY: dist-test
dist-test: need-go ## Test packages in a fresh Debian with systemd, the rpm, and the image by podman
	@scripts/install debootstrap=debootstrap rpm=rpm rpm2cpio=rpm2cpio cpio=cpio podman=podman crun=crun
	go test -tags tend_dist -count=1 -v -timeout 30m ./test/dist

.PHONY: fresh-test
fresh-test: ## Run make build and make test in a fresh Debian, as root: an hour (ONLY=no-go picks a part)
	@test/fresh/run $(ONLY)

.PHONY: kernel-test
kernel-test: need-go ## Run sandboxes on Linux 6.1, 6.12 and Debian's newest in qemu, as root on Debian: 30 minutes (ONLY='internal/core/contain' picks some; RECORD=kernels keeps figures)
	@status=0; export ROWS="$(if $(RECORD),$$(mktemp))"; for suite in $(if $(ONLY),,bullseye) bookworm trixie sid; do \
		test/kernel/run amd64 $$suite $(ONLY) || { status=$$?; echo "kernel-test: $$suite ends with $$status"; }; \
	done; $(if $(RECORD),go run ./bench -emulated "$$ROWS" -record '$(RECORD)' && rm "$$ROWS" || status=1;) exit $$status

.PHONY: container-test
container-test: build ## Run sandboxes in containers of docker and podman, as root on Debian: 5 minutes (ONLY='least' picks some)
	@test/container/run $(ONLY)

.PHONY: oldest-test
oldest-test: build ## Run the suites of E2B, LangSmith and Mastra in sandboxes made in the oldest way, as root: 10 minutes
	@export TEND_SANDBOX_WAY=owners=nobody,devices=bound; test/conformance/e2b/run raw js python && \
		test/conformance/langsmith/run && test/conformance/mastra/run isolated native control e2b

.PHONY: arm64-test
arm64-test: need-go ## Run tests on an emulated arm64, as root on Debian: an hour (ONLY='internal/core/contain internal/core/spool' picks some)
	@test/kernel/run arm64 trixie-backports $(ONLY)

.PHONY: clean
clean: ## Remove what was built and installed here
	rm -rf bin dist internal/core/embedded/tend-keeper* test/conformance/e2b/js/node_modules test/conformance/e2b/python/.venv test/conformance/agents/*/.venv test/conformance/agents/*/node_modules test/conformance/langsmith/js/node_modules test/conformance/langsmith/python/.venv test/conformance/mastra/node_modules test/conformance/supervisors/js/node_modules test/conformance/supervisors/python/.venv sdk/node_modules sdk/*/dist sdk/python/.venv tools/go/.bin

.PHONY: need-go
need-go:
	@scripts/need-go

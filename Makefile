# The door to everything that one does with Ridgeline. Each target says what it does and may be repeated.
# On a bare Debian 12 the packages that a target needs are installed first (as root or with sudo): tools/packages.sh.

RIDGELINE := build/release/ridgeline
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
export JOBS

.DEFAULT_GOAL := build
.PHONY: build demo test test-release test-sanitized test-cuda test-long lint lint-long format install clean help

build: ## build the release binary, build/release/ridgeline
	@tools/packages.sh build
	@tools/build.sh release ridgeline_cli
	@echo "built: $(RIDGELINE)  (try '$(RIDGELINE) --help', or 'make demo')"

demo: build ## make a ResNet-50 with separate BatchNormalization and optimize it on this machine
	@tools/demo.sh $(RIDGELINE)

test: ## every test in a release build and in a sanitizer build, random problems, the kernels on emulated ARM, fuzzing, the install example, the documents; some 45 minutes on 2 cores
	@tools/packages.sh build test aarch64
	@tools/nvrtc.sh
	@tools/test.sh

test-release: ## of these, what needs the release build alone
	@tools/packages.sh build test
	@tools/nvrtc.sh
	@tools/test.sh release

test-sanitized: ## of these, the build with address and undefined-behaviour sanitizers, and 60 s of fuzzing the importer
	@tools/packages.sh build test
	@tools/nvrtc.sh
	@tools/test.sh sanitized

test-cuda: build ## what needs an NVIDIA GPU: 20,000 random problems, models against the reference, compute-sanitizer
	@tools/test_cuda.sh $(RIDGELINE)

test-long: ## all of it, and the longer sweeps: 20,000 random problems, the thread sanitizer, ten minutes of fuzzing
	@tools/packages.sh build test aarch64
	@tools/nvrtc.sh
	@tools/test.sh long

lint: ## format, clang-tidy (newest changes first, within a time budget), order of includes, length of files
	@tools/packages.sh build lint
	@tools/lint.sh

lint-long: ## the same, clang-tidy on every file
	@tools/packages.sh build lint
	@tools/lint.sh long

format: ## let clang-format rewrite the sources
	@tools/packages.sh lint
	@git ls-files -co --exclude-standard -- '*.h' '*.cpp' | xargs clang-format-14 -i

install: ## build all and install below PREFIX (default /usr/local; DESTDIR is honoured)
	@tools/packages.sh build
	@tools/build.sh release ridgeline_cli ridgeline_ops_header
	@cmake --install build/release --prefix "$(PREFIX)" > build/install.log || (cat build/install.log; exit 1)
	@echo "installed below $(PREFIX): bin/ridgeline, include/ridgeline, lib; find_package(Ridgeline) finds it"

clean: ## remove everything that was built
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# Thin: each target is one line of work; the work is in cmake/, CMakeLists.txt and the programs.
#   make demo   set up, build, run the first experiment on any CPU
#   make test   set up, build, run all tests
#   make bench-gpu   the private step beside PyTorch's plain one, on this machine's GPU
#   make wheel       dist/moonshard-…whl: for machines without a compiler, beside PyPI's torch
#   make bundle      dist/moonshard-…-bundle.tar.gz: to build on machines without network; make packages: .deb and .tar.gz
BUILD ?= build
PRESET ?= release
export PATH := $(CURDIR)/.deps/venv/bin:$(PATH)

.PHONY: help setup build demo test lint format clean bench-gpu wheel bundle packages
help:
	@sed -n '2,7p' Makefile

setup:
	@cmake/bootstrap

build: setup
	@cmake/timed build cmake/configure_and_build $(BUILD) $(PRESET)

# CUDA kernels take minutes to compile: only where there is a GPU to run them.
GPU_TARGET := $(if $(wildcard /dev/nvidia0 /dev/nvidiactl),moonshard_gpu)

demo: setup
	@cmake/timed build cmake/configure_and_build $(BUILD) $(PRESET) moonshard moonshard-view moonshard_module $(GPU_TARGET)
	@cmake/timed demo $(BUILD)/bin/moonshard run examples/01_first_sweep.lua

test: build
	@cmake/timed test ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j 5

bench-gpu: setup
	@cmake/timed build cmake/configure_and_build $(BUILD) $(PRESET) moonshard moonshard_gpu
	@$(BUILD)/bin/moonshard run scripts/bench/gpu.lua

wheel: setup
	@cmake/timed build cmake/configure_and_build $(BUILD) $(PRESET) moonshard moonshard-view moonshard_module moonshard_gpu
	@bindings/python/make_wheel $(BUILD) dist

bundle: setup
	@cmake/bundle dist

packages: build
	@cd $(BUILD) && cpack -G "DEB;TGZ" -B $(CURDIR)/dist | grep generated

lint: setup
	@cmake/lint

format:
	@git ls-files -co --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

clean:
	rm -rf $(BUILD)

# `make help` lists the targets. Each prepares what it needs.
PYTHON ?= python3
DOC := the_annotated_transformer
TRANSLATED := $(DOC) since_2017 exercises practice/clinic
NOTEBOOKS := $(TRANSLATED) lab_notebook
LANGUAGES := $(patsubst languages/%.po,%,$(wildcard languages/*.po))
# the English pages from the notebooks in a folder, then the pages and notebooks of every other language
PAGES = for path in $(NOTEBOOKS); do name=$$(basename $$path); \
	$(BIN)/python -m blog page $(if $(1),$(1)$$name,$$path).ipynb build/$$name.html || exit 1; done; \
	$(BIN)/python -m blog listing build/one_screen.html || exit 1; \
	for language in $(LANGUAGES); do \
		$(BIN)/python -m blog listing build/$$language/one_screen.html --language $$language || exit 1; for path in $(TRANSLATED); do \
		name=$$(basename $$path); from=$(if $(1),$(1)$$name,$$path).ipynb; \
		$(BIN)/python -m blog page $$from build/$$language/$$name.html --language $$language && \
		$(BIN)/python -m blog edition apply $$language $$from build/$$language/$$name.ipynb || exit 1; done; done; \
	$(BIN)/python -m blog companion build/$(DOC).zip --notebooks ./$(1)
# make pdf LANG=zh prints the page of that language; a locale such as zh_CN.UTF-8 is none
EDITION := $(addsuffix /,$(filter $(LANG),$(LANGUAGES)))
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
READY := $(VENV)/ready
KATEX := blog/node_modules/ready
.DEFAULT_GOAL := help
# where this is set, every process compiles PyTorch anew, which takes ten seconds
unexport PYTHONDONTWRITEBYTECODE
html notebook quick test: export ANNOTATED_DEVICE := cpu
test: export ANNOTATED_TESTS := all
# two files are tested at a time, each with one thread
quick test soak: export OMP_NUM_THREADS := 1
.PHONY: help setup html notebook page pdf lab quick test soak check format address lock train bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# LOCKED=1 installs what the lock names, each file checked by its hash: on Linux a PyTorch with CUDA
DECLARED = $(if $(LOCKED),--require-hashes -r .ci/requirements.lock,-r requirements.txt --group dev)
$(READY): requirements.txt pyproject.toml
	$(PYTHON) -m venv --upgrade-deps $(VENV)
	$(INSTALL) --no-compile $(DECLARED)
	@touch $@

$(KATEX): $(READY) blog/package.json blog/package-lock.json
	$(BIN)/npm ci --prefix blog --loglevel=error --no-audit --no-fund --no-update-notifier
	@touch $@

setup: $(READY) $(KATEX) ## make the environment in .venv

html: $(READY) $(KATEX) ## execute the document and write build/the_annotated_transformer.html, its other pages, and a .zip to take along; build/zh is Chinese
	rm -rf runs/live-*-minutes-3-*
	$(BIN)/python -m blog notebook run --out build
	$(call PAGES,build/)

notebook: $(READY) ## execute the document and write the notebooks that are committed; a finished live run is taken as it is
	$(BIN)/python -m blog notebook run

page: $(READY) $(KATEX) ## write the pages from the committed notebooks, without executing them
	$(call PAGES,)

pdf: page ## print both documents as papers, build/the_annotated_transformer.pdf and build/since_2017.pdf, and one_screen.py on two pages; needs Chromium; LANG=zh: in Chinese
	$(if $(filter zh/,$(EDITION)),$(BIN)/npm install --prefix blog --no-save --loglevel=error --no-audit --no-fund @fontsource/noto-sans-sc@5.3.0)
	for name in $(DOC) since_2017 one_screen; do $(BIN)/python -m blog pdf build/$(EDITION)$$name.html build/$(EDITION)$$name.pdf || exit 1; done

lab: $(READY) ## open the document in JupyterLab, which is installed into .venv first
	$(INSTALL) --group lab
	$(BIN)/jupyter lab $(DOC).ipynb

quick: $(READY) ## test within a minute: Parts 1 and 2 by oracles, their examples, a training, a translation, the style
	@status=0; $(BIN)/python -m pytest -n 2 -m quick $(addprefix tests/,tour.py document/test_model.py document/test_training.py \
		document/test_examples.py translator/test_cli.py translator/test_interruptions.py) || status=1; $(BIN)/ruff check . && $(BIN)/ruff format --check . || status=1; exit $$status

# On a busy machine a browser may lose a page or be late: that, and no failed assertion, is tried once more, and counted as `rerun`.
LOST := --reruns 1 --only-rerun '^(Error|TimeoutError): (Page|Locator|Frame|Browser)'

test: $(READY) $(KATEX) ## run the tests, check the style and the twins, and report all
	@status=0; $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(LOST) || status=1; $(MAKE) --no-print-directory check || status=1; exit $$status

soak: $(READY) $(KATEX) ## try for hours what may go wrong with a run, open the notebook in JupyterLab, in Chromium, and the pages in Firefox and WebKit
	@command -v chromium >/dev/null || { echo "make soak needs Chromium"; exit 1; }
	$(INSTALL) --group soak
	ANNOTATED_SOAK=1 $(BIN)/python -m pytest --durations=0 tests/test_jupyterlab.py tests/test_browsers.py tests/benchmarks/test_benchmarks.py tests/document/test_document.py \
		$(addprefix tests/translator/test_,interruptions.py distributed.py explorer.py marian.py)

PRETTIER := node blog/node_modules/prettier/bin/prettier.cjs --log-level warn
SCRIPTS := blog/*.js blog/scripts

check: $(READY) $(KATEX) ## check the style, the types, that notebook and script are twins, and quoted numbers
	@status=0; for check in "ruff check ." "ruff format --check ." "pyrefly check" "$(PRETTIER) --check $(SCRIPTS)" \
		"node blog/node_modules/eslint/bin/eslint.js blog" "node blog/types.js" "python -m blog notebook check" "python -m blog quotes"; do \
		echo "$$check"; $(BIN)/$$check || status=1; done; exit $$status

format: $(READY) $(KATEX) ## format the code, and put the scripts of the program's pages together
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/$(PRETTIER) --write $(SCRIPTS)
	$(BIN)/node blog/bundle.js explain translator/explorer_page/explain.js
	$(BIN)/node blog/bundle.js translate translator/translator_page/translate.js

address: $(READY) ## write the public address, URL=https://github.com/OWNER/NAME, into notebooks and README
	$(BIN)/python -m blog address $(URL)

lock: $(READY) ## pin, with hashes, everything that the environment installs, for all systems and Pythons
	$(INSTALL) uv
	$(BIN)/uv pip compile --quiet requirements.txt --group dev --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header | perl -0pe 's/ \\\n */ /g' > .ci/requirements.lock

train: $(READY) ## train the tiny model on Multi30k for 30 minutes in runs/tiny
	$(BIN)/python $(DOC).py train --data multi30k --preset tiny --run runs/tiny --minutes 30

$(BENCH)/ready: BIN := $(BENCH)/bin
$(BENCH)/ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv --upgrade-deps $(BENCH)
	$(INSTALL) -r requirements.txt --group bench
	@touch $@

bench: $(BENCH)/ready train ## measure speed beside other libraries
	for name in "peers --data multi30k" "decoding_speed --data multi30k --model runs/tiny"; do $(BENCH)/bin/python -m benchmarks $$name || exit 1; done

clean: ## remove what was built; runs/ stays
	rm -rf build *.egg-info $(VENV) $(BENCH) blog/node_modules

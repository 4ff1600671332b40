#!/usr/bin/env bash
# Sets up the private Python environments of the tests and the demo:
#
#   setup.sh [FOLDER [NAME...]]   FOLDER is .python under the checkout by default
#
# With names it sets up only these, without names all that tests need:
#
#   FOLDER/old       Colab's kernel stack (ipykernel 6.17.1, IPython 7.34.0)
#   FOLDER/new       the newest kernel stack
#   FOLDER/data      the same with polars, pyarrow, duckdb and uv; its other packages are new's
#   FOLDER/tools     ruff and mypy for make check, pytest for make test
#   FOLDER/notebook  nbclient, which runs the notebook as its page would
#   FOLDER/server    jupyter_server, which stands in for a Colab VM's; its other packages are new's
#   FOLDER/colabcli  the wheel of Google's command line for Colab, whose source a test reads
#   FOLDER/bridge    the old-style bridge that make bench compares with; only if it is named
#
# Each is made once and again when its requirements change. Where pip reaches no
# index, old, notebook and server come from the system's own ipykernel, nbclient
# and jupyter_server, installed by apt-get when we are root, and the others are
# left out: said aloud, with FOLDER/NAME.left-out as the mark that tests read. It
# touches nothing but FOLDER and, only then, the system's packages.
set -euo pipefail
umask 022 # tests run them as other users, too

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-$here/../../.python}
environments=("${@:2}")
[ ${#environments[@]} -gt 0 ] || environments=(old new data tools notebook server colabcli sshd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd -P)
log=$folder/setup.log
: >"$log"

debian_packages=(python3-ipykernel python3-numpy python3-pandas python3-matplotlib python3-dill)

say() { printf 'python: %s\n' "$*"; }

give_up() {
	printf 'python: %s\n' "$*" >&2
	exit 1
}

# install_debian PACKAGE... asks for fresh lists only when the present ones don't
# do: a new container has none.
install_debian() {
	say "installing $*"
	{
		DEBIAN_FRONTEND=noninteractive apt-get install -y "$@" ||
			{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y "$@"; }
	} >>"$log" 2>&1 || true
}

can_install_debian() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# stamp NAME prints what an environment made from today's requirements is marked with.
stamp() { cat "$here/requirements-$1".* | cksum; }

# is_ready NAME: made from today's requirements, and its interpreter still there. colabcli is no
# environment and has none.
is_ready() {
	[ "$1" = colabcli ] || [ -x "$folder/$1/bin/python" ] || return 1
	[ "$(cat "$folder/$1/.stamp" 2>/dev/null)" = "$(stamp "$1")" ]
}

# mark NAME is the last step of every environment, so that one cut short is made again.
mark() {
	stamp "$1" >"$folder/$1/.stamp"
	rm -f "$folder/$1.left-out"
}

leave_out() {
	rm -rf "${folder:?}/$1"
	echo "$2" >"$folder/$1.left-out"
	say "$1 is left out: $2"
}

# has_venv_with_pip: Debian ships python3 without ensurepip unless python3-venv is there.
has_venv_with_pip() { python3 -c 'import venv, ensurepip' 2>>"$log"; }

# reaches_index asks pip itself, so that its own settings count. Debian's python3
# may have no pip outside a venv.
reaches_index() {
	local scratch python=python3 found=1
	scratch=$(mktemp -d)
	if ! python3 -c 'import pip' >>"$log" 2>&1; then
		python3 -m venv "$scratch/venv" >>"$log" 2>&1 || true
		python=$scratch/venv/bin/python
	fi
	if "$python" -m pip download --quiet --no-deps --retries 1 --timeout 15 \
		--dest "$scratch" traitlets==5.7.1 >>"$log" 2>&1; then
		found=0
	fi
	rm -rf "$scratch"
	return $found
}

install() {
	"$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$2" >>"$log" 2>&1
}

# see_packages_of BASE NAME lets NAME import the packages of BASE, which pip then takes for
# installed.
see_packages_of() {
	local site
	site=$(echo "$folder/$2"/lib/python*/site-packages)
	echo "$folder/$1"/lib/python*/site-packages >"$site/base.pth"
}

# from_index NAME installs the full pins, or, where they have no wheels for this
# Python, the short list.
from_index() {
	local name=$1 short=$here/requirements-$1.in
	say "setting up $name"
	python3 -m venv --clear "$folder/$name" >>"$log" 2>&1
	case $name in data | server) see_packages_of new "$name" ;; esac
	if install "$name" "$here/requirements-$name.txt"; then
		:
	elif [ -f "$short" ] && install "$name" "$short"; then
		say "$name: $(python3 --version) can't have every pin of requirements-$name.txt, took requirements-$name.in"
	else
		give_up "pip could not install requirements-$name.txt; the last lines of $log: $(tail -n 3 "$log" | tr '\n' ' ')"
	fi
	mark "$name"
}

# all_from_index NAME... sets up those that are not ready side by side, because pip mostly waits.
all_from_index() {
	local name pid pids=() failed=0
	for name in "$@"; do
		is_ready "$name" || {
			from_index "$name" &
			pids+=($!)
		}
	done
	for pid in ${pids[@]+"${pids[@]}"}; do
		wait "$pid" || failed=1
	done
	[ $failed = 0 ] || exit 1
}

# system_python prints the first interpreter of the machine's that imports ipykernel.
system_python() {
	local python
	for python in python3 /usr/bin/python3; do
		if "$python" -c 'import ipykernel' 2>>"$log"; then
			echo "$python"
			return
		fi
	done
	return 1
}

# old_from_system makes old a view of the system's own packages.
old_from_system() {
	local python
	say "pip reaches no index: taking the system's ipykernel"
	if ! system_python >/dev/null && can_install_debian; then
		install_debian "${debian_packages[@]}"
	fi
	python=$(system_python) || give_up "no Python with ipykernel: install the package python3-ipykernel," \
		"or give pip an index (PIP_INDEX_URL), and run this again; see $log"
	"$python" -m venv --clear --without-pip --system-site-packages "$folder/old" >>"$log" 2>&1 ||
		give_up "$python has no venv module: install the package python3-venv; see $log"
	mark old
	say "old is the system's: ipykernel $("$folder/old/bin/python" -c 'import ipykernel; print(ipykernel.__version__)')"
}

# module_from_system NAME MODULE PACKAGE makes NAME, whose module is in that Debian package, a
# view of the system's own packages.
module_from_system() {
	local python
	python=$(system_python) || python=python3
	if ! "$python" -c "import $2" 2>>"$log" && can_install_debian; then
		install_debian "$3"
	fi
	if ! "$python" -c "import $2" 2>>"$log"; then
		leave_out "$1" "pip reaches no index; to run the tests of $2 install the package $3, then run make python"
		return
	fi
	"$python" -m venv --clear --without-pip --system-site-packages "$folder/$1" >>"$log" 2>&1
	mark "$1"
}

# unless_ready NAME COMMAND... runs the command if NAME is wanted and not set up.
unless_ready() {
	! is_wanted "$1" || is_ready "$1" || "${@:2}"
}

without_index() {
	unless_ready old old_from_system
	unless_ready notebook module_from_system notebook nbclient python3-nbclient
	unless_ready server module_from_system server jupyter_server python3-jupyter-server
	unless_ready new leave_out new "pip reaches no index; tests run on the old kernel stack only"
	unless_ready data leave_out data "pip reaches no index; query_dataframes, and previews of polars and Arrow frames, are not tested"
	unless_ready bridge leave_out bridge "pip reaches no index; make bench does not compare with an old-style bridge"
	unless_ready colabcli leave_out colabcli "pip reaches no index; what relay/vm/colabcli uses is not compared with Google's program, only with the stand-in"
	unless_ready tools leave_out tools "pip reaches no index; make check compiles Python files and checks nothing else, make test runs no pytest"
}

# download_colabcli takes the wheel, whatever Python it is for.
download_colabcli() {
	say "downloading google-colab-cli"
	rm -rf "$folder/colabcli"
	"$folder/old/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
		--python-version 3.12 --only-binary=:all: --dest "$folder/colabcli" \
		--requirement "$here/requirements-colabcli.txt" >>"$log" 2>&1 ||
		give_up "pip could not download google-colab-cli; the last lines of $log: $(tail -n 3 "$log" | tr '\n' ' ')"
	mark colabcli
}

# system_has_sshd looks where packages put it, which is on the PATH of root only.
system_has_sshd() { (PATH=${SSHD_FOLDERS:-/usr/local/sbin:/usr/sbin:/usr/bin} command -v sshd) >/dev/null; }

# lacks_package NAME: not installed here.
lacks_package() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>>"$log")" != installed ]; }

# lacking reads names of packages and prints the libraries among them that are not here.
lacking() {
	local package
	sed -n 's/^ *Depends: //p; s/^\(lib[^ ]*\)$/\1/p' | grep '^lib' | sort -u |
		while read -r package; do
			if lacks_package "$package"; then echo "$package"; fi
		done
}

# sshd_libraries prints the libraries that openssh-server wants and this system
# lacks, and what those want.
sshd_libraries() {
	local missing
	missing=$(apt-cache depends openssh-server 2>>"$log" | lacking)
	[ -n "$missing" ] || return 0
	# shellcheck disable=SC2086
	apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
		--no-replaces --no-enhances $missing 2>>"$log" | lacking
}

# unpack_sshd downloads and unpacks into the folder; only a whole one gets the name.
unpack_sshd() {
	local scratch file
	scratch=$(mktemp -d "$folder/sshd.XXXXXX")
	(
		# shellcheck disable=SC2046
		cd "$scratch" && apt-get download openssh-server $(sshd_libraries) >>"$log" 2>&1 || exit 1
		for file in *.deb; do dpkg -x "$file" tree >>"$log" 2>&1 || exit 1; done
		chmod -R go+rX tree && rm -rf "$folder/sshd" && mv tree "$folder/sshd"
	)
	local result=$?
	rm -rf "$scratch"
	return $result
}

# sshd_or_mark sees to it that tests of the ssh tunnel find a server, or what to say.
sshd_or_mark() {
	if system_has_sshd || [ -x "$folder/sshd/usr/sbin/sshd" ]; then
		rm -f "$folder/sshd.left-out"
	elif unpack_sshd; then
		rm -f "$folder/sshd.left-out"
		say "sshd is unpacked from the package openssh-server"
	else
		leave_out sshd "no sshd here and none to download: install the package openssh-server; tests of the ssh tunnel fail without"
	fi
}

is_wanted() { [[ " ${environments[*]} " == *" $1 "* ]]; }

all_ready() {
	local name
	for name in "${environments[@]}"; do
		[ "$name" = sshd ] || is_ready "$name" || return 1
	done
}

main() {
	! is_wanted sshd || sshd_or_mark
	if all_ready; then
		return
	fi
	command -v python3 >/dev/null || give_up "no python3 on PATH: install the packages python3 and python3-venv"
	if ! has_venv_with_pip && can_install_debian; then
		install_debian python3-venv
	fi
	if ! reaches_index; then
		without_index
		return
	fi
	local name base=() others=()
	for name in "${environments[@]}"; do
		case $name in sshd | colabcli) ;; data | server) others+=("$name") ;; *) base+=("$name") ;; esac
	done
	all_from_index "${base[@]}"
	all_from_index ${others[@]+"${others[@]}"} # they use new
	unless_ready colabcli download_colabcli
}

main

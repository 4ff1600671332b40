#!/bin/sh
# Prints the version of a build, from what git describe --long says of the checkout, or from $1:
#
#   v1.2.3                   the commit of a tag, with nothing changed
#   v1.2.4-dev.5.gabc123     five commits after v1.2.3
#   v1.2.3-rc.1.dev.5.gabc123.dirty   after v1.2.3-rc.1, with changes that are not committed
#   v0.0.0-dev.gabc123       no release before it; v0.0.0-dev without git
#
# It is a semantic version with a v, which sorts behind the release before the build. The names
# of all packages are made from it (pep440 in formats.go has the form for Python).
described=${1-$(git describe --tags --long --always --dirty --match 'v[0-9]*' 2>/dev/null)}
dirty=
case $described in *-dirty) dirty=.dirty described=${described%-dirty} ;; esac
commit=${described##*-}
rest=${described%-*}
count=${rest##*-}
tag=${rest%-*}
base=${tag%%-*}
case $base in
v*.*.*) ;;
*) tag= ;;
esac
case ${base##*.} in *[!0-9]*) tag= ;; esac
if [ -z "$described" ]; then
	echo v0.0.0-dev
elif [ "$rest" = "$described" ] || [ -z "$tag" ]; then
	echo "v0.0.0-dev.g${commit#g}$dirty"
elif [ "$count$dirty" = 0 ]; then
	echo "$tag"
elif [ "$tag" != "$base" ]; then
	echo "$tag.dev.$count.$commit$dirty"
else
	echo "${base%.*}.$((${base##*.} + 1))-dev.$count.$commit$dirty"
fi

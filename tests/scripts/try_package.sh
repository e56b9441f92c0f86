#!/usr/bin/env bash
# Tries the packages of a build folder on a fresh Debian 12 without a compiler, as root and with a network:
#   tests/scripts/try_package.sh build/release
# The .tar.gz must run where nothing is installed; the .deb must install with its dependencies, answer, show its manual
# page, complete a flag, and leave nothing behind. Needs debootstrap; the base system is kept in /var/tmp for the next run.
set -euo pipefail
build=$(realpath "$1")
base=/var/tmp/quire-bookworm
packages=$(mktemp -d)
root=$(mktemp -d /var/tmp/quire-package.XXXXXX)

if [ ! -e "$base/etc/debian_version" ]; then debootstrap --variant=minbase bookworm "$base" >/dev/null; fi
(cd "$build" && cpack -B "$packages" >/dev/null)
cp -a "$base/." "$root/"
cp /etc/resolv.conf "$root/etc/"
cp "$packages"/*.deb "$root/root/quire.deb"
cp "$packages"/*.tar.gz "$root/root/quire.tar.gz"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --make-rslave "$root/dev"
trap 'umount -l "$root/dev" "$root/proc"; rm -rf "$root" "$packages"' EXIT

# Runs a line of shell in the chroot; shows it and stops if it fails.
inside() {
  echo "\$ $*"
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=xterm \
    DEBIAN_FRONTEND=noninteractive bash -eo pipefail -c "$*" </dev/null
}

inside '! command -v gcc'
inside 'tar -C /opt -xzf /root/quire.tar.gz && /opt/quire*/bin/quire chat -p hi'
inside 'apt-get update -q >/dev/null && apt-get install -y -q --no-install-recommends /root/quire.deb man-db bash-completion >/dev/null 2>&1'
inside 'quire chat -p hi && quire --version'
inside 'man quire | grep -q max-model-len'
inside '. /usr/share/bash-completion/bash_completion; _completion_loader quire || true; COMP_WORDS=(quire chat --dev); COMP_CWORD=2; _quire; [ "${COMPREPLY[*]}" = --device ]'
inside 'dpkg --purge $(dpkg-query -W -f "\${Package} " "quire*") && [ ! -e /usr/bin/quire ] && [ ! -e /usr/share/quire ]'
ls -l "$packages"/*.deb "$packages"/*.tar.gz
echo "The packages of $build work."

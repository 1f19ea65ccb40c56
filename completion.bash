# Source this in bash, in the environment that has nox: TAB then completes what stands behind `nox -s COMMAND --` here too.
# What stands before it is nox's own to complete.
eval "$(register-python-argcomplete nox)"

_torchbake_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

_torchbake_command() {
    local python
    for python in "$_torchbake_here"/.nox/torchbake-*/bin/python; do
        [[ -x $python ]] && exec "$python" "$_torchbake_here"  # it asks in a subshell, so nothing else ends
    done
}

_torchbake_nox() {
    local before=${COMP_LINE:0:COMP_POINT}
    if [[ $before =~ \ (-s|-e|--sessions?)[\ =]([a-z]+)\ --\ (.*)$ ]]; then
        local COMP_LINE="torchbake ${BASH_REMATCH[2]} ${BASH_REMATCH[3]}"
        local COMP_POINT=${#COMP_LINE}
        _python_argcomplete _torchbake_command
    else
        _python_argcomplete "$@"
    fi
}

complete -o nospace -o default -o bashdefault -F _torchbake_nox nox

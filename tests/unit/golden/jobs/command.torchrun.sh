#!/bin/sh
# mnist, on 1 bare hosts: sh FILE
# Its Python has what this image has: registry.example.com/team/pytorch:2.13.0-cpu
set -eu
cd -- /srv/code
exec sh -c 'cd examples/mnist && python main.py'

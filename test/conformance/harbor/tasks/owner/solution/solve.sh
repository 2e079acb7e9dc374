#!/bin/bash
umask 022
greet > who
chmod 644 who

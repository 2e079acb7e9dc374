#!/bin/bash
grep -c ERROR "$LOG" > /app/errors

"""Wire formats: conversion between bytes or JSON and typed messages. Pure."""

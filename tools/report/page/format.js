'use strict';
// Numbers as text. What is not known is a dash.

const UNKNOWN = '\u2013';

function known(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

// Three digits, without zeros that say nothing: "4.2", "0.00032", "3e-5".
function digits(value, count = 3) {
  if (!known(value)) return UNKNOWN;
  return String(Number(value.toPrecision(count)));
}

// "12.3 k", "1.2 M".
function si(value, count = 3) {
  if (!known(value)) return UNKNOWN;
  const units = ['', ' k', ' M', ' G', ' T', ' P', ' E', ' Z', ' Y'];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit + 1 < units.length) {
    value /= 1000;
    ++unit;
  }
  return digits(value, count) + units[unit];
}

function bytes(value) {
  if (!known(value)) return UNKNOWN;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (value >= 1023.5 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return `${digits(value)} ${units[unit]}`;
}

function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  const pad = (number) => String(number).padStart(2, '0');
  const s = Math.round(seconds);
  if (seconds < 10) return `${digits(seconds, 2)} s`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${pad(s % 60)} s`;
  const minutes = Math.floor(s / 60);
  if (s < 2 * 86400) {
    return `${Math.floor(minutes / 60)} h ${pad(minutes % 60)} min`;
  }
  const hours = Math.floor(s / 3600);
  return `${Math.floor(hours / 24)} d ${pad(hours % 24)} h`;
}

function fixed(value, decimals = 4) {
  return known(value) ? value.toFixed(decimals) : UNKNOWN;
}

function shortened(text, length) {
  return text.length <= length ? text : text.slice(0, length - 1) + '\u2026';
}

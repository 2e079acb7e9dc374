function t(r){return Array.from(crypto.getRandomValues(new Uint8Array(r)),n=>n.toString(16).padStart(2,"0")).join("")}export{t as a};

export async function drawLearn() { return []; }
